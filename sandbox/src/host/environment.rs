//! The environment variables that override configuration files, and the types their values take.
//!
//! Always holds: an empty variable counts as unset, except below `PLUGIN_CONFIG_`, and what looks like a boolean, a
//! number or a list arrives as one. Both are the connectors runtime's own rules (runtime 0.5.0).

use std::collections::BTreeMap;

use serde_json::Value;

/// A snapshot of environment variables, taken once so that a load sees one consistent set.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process. One whose name or value is not UTF-8 is left out.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of `name`, unless it is unset or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// All variables, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self {
            variables: variables.into_iter().collect(),
        }
    }
}

/// The typed value of an environment variable: a list, a boolean, a whole or a decimal number, else a string.
pub(super) fn typed_value(text: &str) -> Value {
    if let Some(list) = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return list_elements(list)
            .into_iter()
            .map(|element| typed_value(element.trim_matches('"')))
            .collect();
    }
    if text.eq_ignore_ascii_case("true") {
        return Value::Bool(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Value::Bool(false);
    }
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    match text.parse::<f64>() {
        // "inf" and "nan" parse too, but have no place in JSON.
        Ok(number) if number.is_finite() => number.into(),
        _ => Value::String(text.to_owned()),
    }
}

/// Splits at the commas that stand outside double quotes; a comma after the last element is no element.
fn list_elements(list: &str) -> Vec<&str> {
    let mut elements = Vec::new();
    let mut quoted = false;
    let mut rest = list;
    let end_of_element = |text: &str, quoted: &mut bool| {
        text.char_indices().find_map(|(index, character)| {
            if character == '"' {
                *quoted = !*quoted;
            }
            (character == ',' && !*quoted).then_some(index)
        })
    };
    while !rest.is_empty() {
        match end_of_element(rest, &mut quoted) {
            Some(index) => {
                let (element, tail) = rest.split_at(index);
                elements.push(element.trim());
                rest = tail.strip_prefix(',').unwrap_or(tail);
            }
            None => {
                elements.push(rest.trim());
                break;
            }
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_takes_the_type_it_looks_like() {
        assert_eq!(typed_value("true"), json!(true));
        assert_eq!(typed_value("False"), json!(false));
        assert_eq!(typed_value("123456"), json!(123_456));
        assert_eq!(typed_value("-5"), json!(-5));
        assert_eq!(typed_value("0.5"), json!(0.5));
        assert_eq!(typed_value("127.0.0.1:1883"), json!("127.0.0.1:1883"));
        assert_eq!(typed_value("nan"), json!("nan"));
        assert_eq!(typed_value(""), json!(""));
    }

    #[test]
    fn a_bracketed_value_is_a_list_of_typed_values() {
        assert_eq!(
            typed_value(r#"[127.0.0.1:1883, "a,b", 7]"#),
            json!(["127.0.0.1:1883", "a,b", 7])
        );
        assert_eq!(typed_value("[]"), json!([]));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let environment: Environment = [("A".to_owned(), String::new())].into_iter().collect();
        assert_eq!(environment.get("A"), None);
    }
}
