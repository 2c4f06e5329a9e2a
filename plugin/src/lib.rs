//! The shared library that the Iggy connectors runtime loads: the MQTT gateway as a source connector and as a sink
//! connector. Nothing but their symbols is here. The runtime loads the library once for both, so they find the same
//! gateway.

/// The symbols of the source connector.
mod source {
    use mqtt_gateway_source::MqttSource;

    iggy_connector_sdk::source_connector!(MqttSource);
}

/// The symbols of the sink connector.
mod sink {
    use mqtt_gateway_sink::MqttSink;

    iggy_connector_sdk::sink_connector!(MqttSink);
}
