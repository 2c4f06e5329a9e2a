# The Apache Iggy connectors runtime with the MQTT gateway on it. Built by `docker compose up --build`.

# The plugin is a C shared library that the runtime loads, so it must not need a newer C library than the runtime's
# image has. Both are Debian trixie.
FROM rust:1.95-trixie AS plugin
WORKDIR /build
COPY . .
RUN cargo build --locked --release -p iggy_connector_mqtt_gateway

FROM apache/iggy-connect:0.5.0
# One of the folders in which the runtime looks for a library that the connector files name without a folder.
COPY --from=plugin /build/target/release/libiggy_connector_mqtt_gateway.so /usr/local/lib/
# The working directory, from which the paths in these files count.
WORKDIR /app
COPY runtime-config runtime-config
ENV IGGY_CONNECTORS_CONFIG_PATH=runtime-config/config.toml
EXPOSE 1883
