//! The commands of `mqtt-gateway` that the pages show end as the pages say.
//!
//! Every line of a block of the language `sh` that begins with `mqtt-gateway` is run, in the order of its page, in a folder with
//! a copy of `runtime-config/`, its `acl.toml` also by that name alone, and the TOML files of the page that begin with `# name`.
//! It has to end with 0, or with what a comment behind it says: `# exits with 1`.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::binaries;
use e2e::config::Files;

use super::markdown::{Page, pages};

/// What is typed where a password is asked for.
const PASSWORD: &str = "correct horse battery staple\n";

/// Writes the TOML files of the page that begin with `# name`.
pub(super) fn write_files(page: &Page, folder: &Path) {
    for block in page
        .blocks
        .iter()
        .filter(|block| block.what.language() == "toml")
    {
        let first = block.what.text.lines().next().unwrap_or_default();
        if let Some(name) = first
            .strip_prefix("# ")
            .filter(|name| name.ends_with(".toml"))
        {
            fs::write(folder.join(name), &block.what.text).expect("a file of the page");
        }
    }
}

fn run(line: &str, folder: &Path) -> Result<(), String> {
    let (_, comment) = line.split_once(" # ").unwrap_or((line, ""));
    let expected = match comment.trim().strip_prefix("exits with ") {
        Some(code) => code
            .split(|one: char| !one.is_ascii_digit())
            .next()
            .and_then(|code| code.parse().ok())
            .ok_or("what does it exit with?")?,
        None => 0,
    };
    let programs = binaries::command_line();
    let path = env::join_paths(
        programs
            .parent()
            .map(Path::to_path_buf)
            .into_iter()
            .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    )
    .map_err(|error| error.to_string())?;
    let mut child = Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // Most do not read it, and may be gone already.
    let _ = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(PASSWORD.as_bytes()));
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.code() == Some(expected) {
        return Ok(());
    }
    Err(format!(
        "ended with {} and not with {expected}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[test]
fn every_command_of_mqtt_gateway_ends_as_its_page_says() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let commands: Vec<(usize, &str)> = page
            .blocks
            .iter()
            .filter(|block| block.what.language() == "sh")
            .flat_map(|block| {
                let lines = block.what.text.lines().enumerate();
                lines.map(|(number, line)| (block.line + 1 + number, line.trim()))
            })
            .filter(|(_, line)| {
                line.starts_with("mqtt-gateway ")
                    || line.starts_with("./target/release/mqtt-gateway ")
            })
            .collect();
        if commands.is_empty() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let files = Files::copy_shipped(folder.path());
        fs::copy(files.path("acl.toml"), folder.path().join("acl.toml")).unwrap();
        fs::write(folder.path().join("password.txt"), PASSWORD).unwrap();
        write_files(&page, folder.path());
        for (number, line) in commands {
            count += 1;
            let line = line.trim_start_matches("./target/release/");
            if let Err(why) = run(line, folder.path()) {
                wrong.push(format!("{}: {line}\n{why}", page.at(number)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10, "{count}");
}
