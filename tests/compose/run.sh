#!/bin/bash
# Runs docker-compose.yml for real, but without the official images: their names are given to stand-ins made from this
# machine's own files and from the sandbox.
#
# Publishers with QoS 1 and a subscriber outside of the containers go on while both containers are restarted and killed;
# afterwards everything that was acknowledged has to be stored and received. Then the containers are replaced and it has to be
# stored still.
#
# Needs a Docker daemon, Docker Compose, mosquitto_pub and mosquitto_sub, Python with paho-mqtt, and a build of the workspace;
# scripts/compose-test sees to all of them but the last:
#   cargo build --workspace && tests/compose/run.sh [FOLDER WITH sandbox AND THE PLUGIN, default target/debug]
#
# With IGGY_CONNECTORS_BIN=/path/of/iggy-connectors the runtime's stand-in is made from that official program.
#
# The stand-ins' names are those of the official images, so that what is tested is what is shipped. Where one of those
# images is present already nothing is done, and the status is 77. The stand-ins are removed at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=${1:-target/debug}
plugin=libiggy_connector_mqtt_gateway.so
label=mqtt-gateway.stand-in=true
images=(apache/iggy:0.9.0 apache/iggy-connect:0.5.0 rust:1.95-trixie)
# All in one Iggy topic; the last two have the same key.
topics=(building/north/room/{1,2,3}/temp building/north/room/3/humidity)
python=/usr/bin/python3

# The ports are free ones, found out later; the project and its volume are not those of a user.
export COMPOSE_PROJECT_NAME=mqtt-gateway-stand-in MQTT_PUBLISH=127.0.0.1: IGGY_PUBLISH=127.0.0.1:

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Compose is a plugin of Docker's client or, as in Debian, a program of its own.
if docker compose version > /dev/null 2>&1; then
    compose_program=(docker compose)
else
    compose_program=(docker-compose)
fi
for tool in docker mosquitto_pub mosquitto_sub "${compose_program[0]}"; do
    command -v "$tool" > /dev/null || fail "$tool is not installed"
done
"$python" -c 'import paho.mqtt.client' 2> /dev/null || fail "python3-paho-mqtt is not installed"
docker info > /dev/null 2>&1 || fail "no Docker daemon answers"
for file in "$built/sandbox" "$built/$plugin"; do
    [[ -f $file ]] || fail "$file is missing: cargo build --workspace"
done
for image in "${images[@]}"; do
    if docker image inspect "$image" > /dev/null 2>&1 &&
        [[ -z $(docker image ls -q --filter "label=$label" "$image") ]]; then
        echo "$image is present, and is not replaced by a stand-in" >&2
        exit 77
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compose_file=docker-compose.yml
if [[ $("${compose_program[@]}" version --short) =~ ^v?1\. ]]; then
    # Compose 1 knows everything in the file but the project's name, which the variable gives.
    compose_file=$work/docker-compose.yml
    grep -v '^name: ' docker-compose.yml > "$compose_file"
fi
compose() {
    "${compose_program[@]}" --project-directory . -f "$compose_file" -f tests/compose/stand-ins.yml "$@"
}

# Waits until the command succeeds, for a minute and a half at most.
wait_until() {
    local what=$1 deadline=$((SECONDS + 90))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || fail "waited in vain: $what"
        sleep 0.2
    done
}

# Compose 1 has no `up --wait`.
healthy() {
    [[ $(docker inspect --format '{{.State.Health.Status}}' "$(compose ps -q "$1")") == healthy ]]
}
wait_for_health() {
    local service
    for service in iggy mqtt-gateway; do
        wait_until "$service is healthy" healthy "$service"
    done
}

clean_up() {
    status=$?
    trap - EXIT
    if [[ $status != 0 ]]; then
        compose logs --tail 50 >&2 || true
    fi
    # shellcheck disable=SC2046 # One a process.
    kill $(jobs -p) 2> /dev/null || true
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
    # A client without buildx warns of the older builder, which is all that is needed here.
    docker build --quiet -t "$image" -f "$work/Dockerfile" "$root" > "$work/build.log" 2>&1 ||
        fail "building $image: $(cat "$work/build.log")"
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
compose up --build --detach > "$work/up.log" 2>&1 || fail "compose up: $(cat "$work/up.log")"
wait_for_health

# The published ports are the daemon's choice. A container that is started again gets another, so that clients would have to look for
# it: from here on it is this one.
address=$(compose port mqtt-gateway 1883)
MQTT_PUBLISH=$address
compose up --detach > "$work/up.log" 2>&1 || fail "compose up: $(cat "$work/up.log")"
wait_for_health
host=${address%:*} port=${address##*:}

# What a subscriber gets that is there from the beginning and comes back by itself. Its output has to come line by line, because
# it says when the subscription is there.
filters=()
for topic in "${topics[@]}"; do
    filters+=(-t "$topic")
done
stdbuf -oL mosquitto_sub -h "$host" -p "$port" -i subscriber -q 1 -v -d "${filters[@]}" > "$work/received" 2>&1 &
subscriber=$!
is_subscribed() {
    kill -0 "$subscriber" 2> /dev/null || fail "mosquitto_sub ended early"
    grep -qs '^Subscribed' "$work/received"
}
wait_until "the subscriber has its SUBACK" is_subscribed

echo "publishing"
mkfifo "$work/until"
"$python" tests/compose/publishers.py "$host" "$port" "${topics[@]}" < "$work/until" > "$work/acknowledged" &
publishers=$!
exec 3> "$work/until"

# Waits until every topic has so many messages more that were acknowledged.
acknowledged() {
    grep -c "^$1 " "$work/acknowledged" || true
}
more_acknowledged() {
    [[ $(acknowledged "$1") -ge $2 ]]
}
progress() {
    local topic
    for topic in "${topics[@]}"; do
        kill -0 "$publishers" 2> /dev/null || fail "the publishers ended early"
        wait_until "more of $topic is acknowledged" more_acknowledged "$topic" "$(($(acknowledged "$topic") + 50))"
    done
}
progress

for service in mqtt-gateway iggy; do
    for trouble in restart kill; do
        echo "$trouble of $service while they publish"
        if [[ $trouble == restart ]]; then
            compose restart --timeout 20 "$service" > "$work/trouble.log" 2>&1
        else
            compose kill -s KILL "$service" > "$work/trouble.log" 2>&1
            compose start "$service" >> "$work/trouble.log" 2>&1
        fi || fail "$trouble: $(cat "$work/trouble.log")"
        wait_for_health
        progress
    done
done

echo "ending"
exec 3>&-
wait "$publishers" || fail "not everything that was published was acknowledged in the end"
marker="after everything"
mosquitto_pub -h "$host" -p "$port" -q 1 -t "${topics[0]}" -m "$marker"
wait_until "the subscriber received the last message" grep -qx "${topics[0]} $marker" "$work/received"

stored() {
    "$built/sandbox" read building_north telemetry --json --address "$(compose port iggy 8090)"
}
stored > "$work/stored"
compare() {
    "$python" tests/compose/compare.py "$work/acknowledged" "$1" "$work/received"
}
compare "$work/stored" || fail "what was acknowledged is not what is there"

echo "replacing the containers"
compose down --timeout 20 > /dev/null 2>&1
compose up --detach > "$work/up.log" 2>&1 || fail "compose up: $(cat "$work/up.log")"
wait_for_health
stored > "$work/stored-again"
cmp "$work/stored" "$work/stored-again" || fail "other messages are stored after the containers were replaced"

echo "passed"
