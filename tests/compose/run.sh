#!/bin/bash
# Runs docker-compose.yml for real, but without the official images: their names are given to stand-ins made from this
# machine's own files and from the sandbox. Sends a message through, replaces the containers, reads it back.
#
# Needs a Docker daemon, Docker Compose 2, mosquitto_pub and mosquitto_sub, and a build of the workspace:
#   cargo build --workspace && tests/compose/run.sh [FOLDER WITH sandbox AND THE PLUGIN, default target/debug]
#
# With IGGY_CONNECTORS_BIN=/path/of/iggy-connectors the runtime's stand-in is made from that official program.
#
# The stand-ins' names are those of the official images, so that what is tested is what is shipped. Where one of those
# images is present already, nothing is done. The stand-ins are removed at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=${1:-target/debug}
plugin=libiggy_connector_mqtt_gateway.so
label=mqtt-gateway.stand-in=true
images=(apache/iggy:0.9.0 apache/iggy-connect:0.5.0 rust:1.95-trixie)
topic=building/north/room/42/temp
work=$(mktemp -d)

# The ports are free ones, found out later; the project and its volume are not those of a user.
export COMPOSE_PROJECT_NAME=mqtt-gateway-stand-in MQTT_PUBLISH=127.0.0.1: IGGY_PUBLISH=127.0.0.1:
compose() {
    docker compose -f docker-compose.yml -f tests/compose/stand-ins.yml "$@"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

for tool in docker mosquitto_pub mosquitto_sub; do
    command -v "$tool" > /dev/null || fail "$tool is not installed"
done
docker info > /dev/null 2>&1 || fail "no Docker daemon answers"
for file in "$built/sandbox" "$built/$plugin"; do
    [[ -f $file ]] || fail "$file is missing: cargo build --workspace"
done
for image in "${images[@]}"; do
    if docker image inspect "$image" > /dev/null 2>&1 &&
        [[ -z $(docker image ls -q --filter "label=$label" "$image") ]]; then
        fail "$image is present, and is not replaced by a stand-in"
    fi
done

clean_up() {
    status=$?
    trap - EXIT
    if [[ $status != 0 ]]; then
        compose logs --tail 50 >&2 || true
    fi
    compose down --volumes --timeout 5 > /dev/null 2>&1 || true
    for image in mqtt-gateway:stand-in "${images[@]}"; do
        if [[ -n $(docker image ls -q --filter "label=$label" "$image") ]]; then
            docker image rm "$image" > /dev/null || true
        fi
    done
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT

# A root folder with the given programs of this machine and the libraries they need.
root_with() {
    local root=$1 program library
    shift
    mkdir -p "$root/bin" "$root/tmp" "$root/app" "$root/usr/local/lib"
    for program in bash grep mkdir cp cat "$@"; do
        program=$(command -v "$program")
        cp -L "$program" "$root/bin/"
        for library in $(ldd "$program" | grep -o '/[^ )]*' || true); do
            mkdir -p "$root$(dirname "$library")"
            cp -L -n "$library" "$root$library"
        done
    done
    ln -sf bash "$root/bin/sh"
}

# Builds a stand-in from a root folder; further arguments are lines of its Dockerfile.
stand_in() {
    local image=$1 root=$2
    shift 2
    printf '%s\n' "FROM scratch" "COPY . /" "ENV PATH=/bin:/usr/local/bin" "LABEL $label" "$@" > "$work/Dockerfile"
    docker build --quiet -t "$image" -f "$work/Dockerfile" "$root" > /dev/null
}

echo "building the stand-ins"
root_with "$work/iggy" "$built/sandbox"
cp tests/compose/stand-ins/{iggy,iggy-server} "$work/iggy/bin/"
stand_in apache/iggy:0.9.0 "$work/iggy" 'WORKDIR /app' 'ENTRYPOINT ["iggy-server"]'

if [[ -n ${IGGY_CONNECTORS_BIN:-} ]]; then
    root_with "$work/connect" "$IGGY_CONNECTORS_BIN"
else
    root_with "$work/connect" "$built/sandbox"
    cp tests/compose/stand-ins/iggy-connectors "$work/connect/bin/"
fi
# Found by the dynamic linker when the plugin is loaded; the program itself may not need them.
for library in $(ldd "$built/$plugin" | grep -o '/[^ )]*'); do
    mkdir -p "$work/connect$(dirname "$library")"
    cp -L -n "$library" "$work/connect$library"
done
stand_in apache/iggy-connect:0.5.0 "$work/connect" 'WORKDIR /app' 'ENTRYPOINT ["iggy-connectors"]'

root_with "$work/rust"
cp tests/compose/stand-ins/cargo "$work/rust/bin/"
mkdir "$work/rust/prebuilt"
cp "$built/$plugin" "$work/rust/prebuilt/"
stand_in rust:1.95-trixie "$work/rust"

echo "starting"
compose up --build --detach --wait --wait-timeout 120
mqtt() {
    local address
    address=$(compose port mqtt-gateway 1883)
    echo "-h ${address%:*} -p ${address##*:}"
}

echo "sending a message"
# Its output has to come line by line, because it says when the subscription is there.
# shellcheck disable=SC2046 # Two options.
stdbuf -oL mosquitto_sub $(mqtt) -t "$topic" -q 1 -C 1 -W 60 -d > "$work/received" &
subscriber=$!
deadline=$((SECONDS + 60))
until grep -q '^Subscribed' "$work/received"; do
    ((SECONDS < deadline)) || fail "no SUBACK"
    sleep 0.1
    kill -0 "$subscriber" 2> /dev/null || fail "mosquitto_sub ended early"
done
# shellcheck disable=SC2046
mosquitto_pub $(mqtt) -t "$topic" -q 1 -m "through the containers"
wait "$subscriber" || fail "nothing was received"
grep -qx "through the containers" "$work/received" || fail "something else was received: $(cat "$work/received")"

echo "replacing the containers"
compose down --timeout 20
compose up --detach --wait --wait-timeout 120
stored=$("$built/sandbox" read building_north telemetry --address "$(compose port iggy 8090)")
[[ $stored == *"mqtt.topic=$topic payload=\"through the containers\"" ]] || fail "stored is: $stored"
[[ $(wc -l <<< "$stored") == 1 ]] || fail "stored more than once: $stored"

echo "passed: $stored"
