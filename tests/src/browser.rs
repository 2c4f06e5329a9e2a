//! A browser without a window: Chromium, driven by ChromeDriver over the WebDriver protocol (W3C).
//!
//! Always holds: a command that gets no answer in time is an error; the browser ends with its value; what the page says on the
//! console is kept.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http;
use crate::ports::free_port;
use crate::process::Process;
use crate::wait;

const START: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub struct Browser {
    address: SocketAddr,
    session: String,
    _driver: Process,
    _profile: TempDir,
}

/// Whether Chromium and ChromeDriver are installed.
pub fn is_installed() -> bool {
    let answers = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    answers("chromium") && answers("chromedriver")
}

impl Browser {
    /// Starts one with a window of that size, in dark colours or in light ones.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(width: u32, height: u32, is_dark: bool) -> Self {
        let profile = tempfile::tempdir().expect("a temporary folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={}", address.port()));
        let log = profile.path().join("chromedriver.log");
        let driver = Process::start("ChromeDriver", command, &log);
        wait::until("ChromeDriver listens", START, || {
            TcpStream::connect(address).is_ok()
        });
        let mut arguments = vec![
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={width},{height}"),
            format!(
                "--user-data-dir={}",
                profile.path().join("profile").display()
            ),
        ];
        if is_dark {
            arguments.push("--force-dark-mode".to_owned());
        }
        let options = json!({ "binary": "/usr/bin/chromium", "args": arguments });
        let wanted = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let started = call(address, "POST", "/session", &body);
        let session = started["sessionId"].as_str();
        let session = session.unwrap_or_else(|| panic!("no browser: {started}"));
        Self {
            address,
            session: session.to_owned(),
            _driver: driver,
            _profile: profile,
        }
    }

    fn ask(&self, method: &str, what: &str, body: &Value) -> Value {
        let path = format!("/session/{}{what}", self.session);
        call(self.address, method, &path, body)
    }

    /// Loads a page.
    ///
    /// # Panics
    /// When the browser cannot.
    pub fn open(&self, url: &str) {
        let answer = self.ask("POST", "/url", &json!({ "url": url }));
        assert!(answer.is_null(), "{url}: {answer}");
    }

    /// Sizes the window.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height });
        self.ask("POST", "/window/rect", &size);
    }

    /// Runs a piece of script in the page and gives what it returns.
    ///
    /// # Panics
    /// When it throws.
    pub fn run(&self, script: &str) -> Value {
        let answer = self.ask(
            "POST",
            "/execute/sync",
            &json!({ "script": script, "args": [] }),
        );
        assert!(answer.get("error").is_none(), "{script}: {answer}");
        answer
    }

    /// As [`Browser::run`], of a script that returns a text.
    pub fn text(&self, script: &str) -> String {
        let value = self.run(script);
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    }

    /// What the page has said on the console since the last call, refused requests and scripts among it.
    pub fn console(&self) -> Vec<String> {
        let lines = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let lines = lines.as_array().cloned().unwrap_or_default();
        lines
            .iter()
            .map(|line| line["message"].to_string())
            .collect()
    }

    /// Writes a picture of the window, as PNG.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn picture(&self, file: &Path) {
        let answer = self.ask("GET", "/screenshot", &Value::Null);
        let text = answer.as_str().expect("a picture");
        let bytes = STANDARD.decode(text).expect("base64");
        fs::write(file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let path = format!("/session/{}", self.session);
        let _ = http::request(self.address, "DELETE", &path, None, None);
    }
}

/// The `value` of the answer.
fn call(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let body = (!body.is_null()).then_some(body);
    let reply = http::request(address, method, path, None, body);
    let reply = reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    reply.json()["value"].clone()
}
