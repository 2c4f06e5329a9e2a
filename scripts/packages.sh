# Installs Debian packages that are missing. To be sourced.

missing=()

# need PACKAGE COMMAND...: the package is wanted unless the command succeeds.
need() {
    local package=$1
    shift
    if ! "$@" >/dev/null 2>&1; then
        missing+=("$package")
    fi
}

# Installs what was found to be missing, or says what to install where apt-get does not exist.
install_missing() {
    if [ "${#missing[@]}" -eq 0 ]; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        echo "Please install what these Debian packages contain, then run this again: ${missing[*]}" >&2
        exit 1
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Please install these packages as root, then run this again: ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "Installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"
    missing=()
}

# A C compiler with the C library's headers, for the crates that contain C.
need_c_compiler() {
    need gcc sh -c 'command -v cc'
    need libc6-dev sh -c 'echo "#include <stdlib.h>" | cc -E -'
}

need_cargo() {
    if ! command -v cargo >/dev/null && [ -f "$HOME/.cargo/env" ]; then
        . "$HOME/.cargo/env"
    fi
    if ! command -v cargo >/dev/null; then
        echo "Please install Rust with rustup (https://rustup.rs), then run this again." >&2
        exit 1
    fi
}
