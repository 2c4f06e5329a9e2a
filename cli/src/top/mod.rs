//! `mqtt-gateway top`: what a running gateway does, live in a terminal.
//!
//! What always holds: the terminal is as it was before when the program ends, by a panic too; a gateway that does not answer is
//! asked again, and what is shown meanwhile says how old it is.

mod draw;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mqtt_gateway::status::Status;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::args::TopArgs;
use crate::status::fetch::Source;
use crate::status::{StatusError, view};
use crate::{Failure, Verdict};

/// How often the gateway is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// How soon a key is answered.
const KEYS: Duration = Duration::from_millis(50);

/// What is shown.
pub(crate) struct Screen {
    url: String,
    status: Option<(Status, Instant)>,
    /// Why the gateway does not answer, while it does not.
    error: Option<String>,
    /// Which table.
    tab: usize,
    /// The first row of it that is shown.
    row: usize,
    is_paused: bool,
}

impl Screen {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            status: None,
            error: None,
            tab: 0,
            row: 0,
            is_paused: false,
        }
    }

    /// The gateway has answered, or has not.
    fn heard(&mut self, heard: Result<Status, String>, now: Instant) {
        if self.is_paused {
            return;
        }
        match heard {
            Ok(status) => {
                self.status = Some((status, now));
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn tables(&self) -> Vec<view::Table> {
        let status = self.status.as_ref();
        status
            .map(|(status, _)| view::tables(status))
            .unwrap_or_default()
    }

    /// Says whether to go on.
    fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        let tables = self.tables();
        let tabs = tables.len().max(1);
        let rows = tables.get(self.tab).map_or(0, |table| table.rows.len());
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('p') | KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab | KeyCode::Right => (self.tab, self.row) = ((self.tab + 1) % tabs, 0),
            KeyCode::BackTab | KeyCode::Left => {
                (self.tab, self.row) = ((self.tab + tabs - 1) % tabs, 0);
            }
            KeyCode::Down => self.row = (self.row + 1).min(rows.saturating_sub(2)),
            KeyCode::Up => self.row = self.row.saturating_sub(1),
            KeyCode::Home => self.row = 0,
            _ => {}
        }
        true
    }
}

pub(crate) fn run(arguments: &TopArgs) -> Result<Verdict, Failure> {
    let source = Source::new(&arguments.gateway).map_err(StatusError::from)?;
    let mut screen = Screen::new(source.url());
    // Restored by a panic, too.
    let mut terminal = ratatui::try_init()?;
    let (tell, hear) = mpsc::channel();
    // Asking may take seconds, in which keys are to be answered. Ends with the program.
    thread::spawn(move || ask(&source, &tell));
    let outcome = watch(&mut terminal, &mut screen, &hear);
    ratatui::restore();
    outcome?;
    Ok(Verdict::Fine)
}

fn ask(source: &Source, tell: &Sender<Result<Status, String>>) {
    loop {
        let begun = Instant::now();
        let heard = source.fetch().map_err(|error| error.to_string());
        if tell.send(heard).is_err() {
            return;
        }
        thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
    }
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    hear: &Receiver<Result<Status, String>>,
) -> std::io::Result<()> {
    loop {
        terminal.draw(|frame| draw::draw(screen, Instant::now(), frame))?;
        match hear.recv_timeout(KEYS) {
            Ok(heard) => screen.heard(heard, Instant::now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !screen.press(key.code, key.modifiers)
            {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::tests::sample;

    #[test]
    fn keys_go_round_the_tables_and_stop_at_the_last_row() {
        let mut screen = Screen::new("http://127.0.0.1:9883");
        let none = KeyModifiers::NONE;
        assert!(
            screen.press(KeyCode::Tab, none),
            "also before anything has come"
        );
        screen.heard(Ok(sample()), Instant::now());
        screen.tab = 0;
        assert!(screen.press(KeyCode::BackTab, none));
        assert_eq!(screen.tab, screen.tables().len() - 1);
        assert!(screen.press(KeyCode::Right, none));
        assert_eq!(screen.tab, 0);
        for _ in 0..100 {
            screen.press(KeyCode::Down, none);
        }
        assert_eq!(screen.row, screen.tables()[0].rows.len() - 2);
        assert!(!screen.press(KeyCode::Char('q'), none));
        assert!(!screen.press(KeyCode::Char('c'), KeyModifiers::CONTROL));
    }

    #[test]
    fn what_comes_while_it_is_paused_does_not_change_what_is_shown() {
        let mut screen = Screen::new("http://127.0.0.1:9883");
        screen.press(KeyCode::Char('p'), KeyModifiers::NONE);
        screen.heard(Ok(sample()), Instant::now());
        assert!(screen.status.is_none());
    }
}
