//! The status page in a real browser, of a gateway that works.
//!
//! With E2E_PICTURES=FOLDER it leaves pictures of what it saw there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::browser::{self, Browser};
use e2e::deployment::Deployment;
use e2e::packet::{self, publish_qos0};
use e2e::raw::{Answer, RawClient};
use e2e::wait;

const PATIENCE: Duration = Duration::from_secs(30);
/// Somebody who does not know the code finds what is stuck within this time.
const GLANCE: Duration = Duration::from_secs(10);

/// A client id that a page which is careless with texts would run as a script.
const HOSTILE: &str = "<img src=x onerror=document.title='owned'>";

fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("E2E_PICTURES") {
        browser.picture(&PathBuf::from(folder).join(name));
    }
}

/// Publishes until it is told to stop, and refuses itself a little.
fn load(deployment: &Deployment, n: usize, stop: &AtomicBool) {
    let mut client = deployment.client(&format!("sensor-{n}"));
    let topic = format!("device/{n}/temperature");
    for round in 0_u32.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = (round % 60_000) as u16 + 1;
        client.publish(&topic, id, "21.5".repeat(1 + round as usize % 20));
        if round % 50 == 0 {
            client.send(&publish_qos0("$weird/topic", "x"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads and acknowledges until it is told to stop.
fn read(mut client: RawClient, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        if let Answer::Packet(bytes) = client.answer(Duration::from_millis(100))
            && let Some(copy) = packet::read_publish(&bytes)
        {
            client.send(&packet::puback(copy.id));
        }
    }
}

#[test]
fn the_page_shows_in_a_browser_what_the_gateway_does_and_who_is_stuck_within_ten_seconds() {
    if !browser::is_installed() {
        binaries::skipped(
            "the status page",
            "Chromium and ChromeDriver are not installed",
        );
        return;
    }
    let mut deployment = Deployment::start();
    let url = format!("http://{}/", deployment.http());
    let stop = AtomicBool::new(false);
    let browser = Browser::start(1_200, 1_600, false);
    thread::scope(|scope| {
        for n in 0..6 {
            let (deployment, stop) = (&deployment, &stop);
            scope.spawn(move || load(deployment, n, stop));
        }
        for n in 0..3 {
            let mut client = deployment.client(&format!("dashboard-{n}"));
            client.subscribe(&format!("device/{n}/temperature"), 1);
            let stop = &stop;
            scope.spawn(move || read(client, stop));
        }
        let mut hostile = deployment.client(HOSTILE);
        hostile.subscribe("device/4/temperature", 1);
        scope.spawn(|| read(hostile, &stop));
        let mut stuck = deployment.client("press-42");
        stuck.subscribe("device/5/temperature", 1);

        browser.open(&url);
        let opened = Instant::now();
        let attention = || browser.text("return document.querySelector('#attention').innerText");
        wait::until("the stuck subscriber is named", GLANCE, || {
            attention().contains("client press-42 at 127.0.0.1:")
        });
        println!("named after {:?}: {}", opened.elapsed(), attention());
        assert!(
            attention().contains("has not acknowledged offset"),
            "{}",
            attention()
        );
        let badge = browser.text("return document.querySelector('#ready').innerText");
        assert_eq!(badge, "✓ ready");

        let stored = || {
            let script = "return [...document.querySelectorAll('#outcomes tbody tr')].find((row) => row.cells[0].innerText === 'stored').cells[1].innerText.replaceAll(',', '')";
            browser.text(script).parse::<u64>().unwrap_or_default()
        };
        let before = stored();
        wait::until("the numbers move", PATIENCE, || stored() > before);
        wait::until("the curves are drawn", PATIENCE, || {
            let points = browser.text(
                "return document.querySelector('#rate-stored polyline').getAttribute('points')",
            );
            points.split(' ').count() >= 3
        });

        // What somebody is about to do is not disturbed by what comes in.
        browser.run("document.querySelector('#subscribers-box').open = true; document.querySelector('#topic').focus(); document.querySelector('#topic').value = 'device/7/x'");
        let seen = stored();
        wait::until("the numbers move on", PATIENCE, || stored() > seen);
        assert_eq!(
            browser.text("return document.activeElement.id + ' ' + document.activeElement.value"),
            "topic device/7/x"
        );
        assert_eq!(
            browser.run("return document.querySelector('#subscribers-box').open"),
            true
        );
        let subscribers = browser.text("return document.querySelector('#subscribers').innerText");
        assert!(subscribers.contains(HOSTILE), "{subscribers}");
        assert_eq!(
            browser.run("return document.querySelectorAll('img').length"),
            0
        );
        assert!(!browser.text("return document.title").contains("owned"));

        let explain = |topic: &str| {
            browser.run(&format!("document.querySelector('#explained').textContent = ''; document.querySelector('#topic').value = {topic:?}; document.querySelector('#explain button').click()"));
            wait::value("an explanation", PATIENCE, || {
                let text = browser.text("return document.querySelector('#explained').innerText");
                (!text.is_empty()).then_some(text)
            })
        };
        let text = explain("device/7/x");
        assert!(
            text.contains("✓ stored in stream")
                && text.contains("topic devices")
                && text.contains("by rule 1"),
            "{text}"
        );
        assert!(text.contains("group 1 = 7"), "{text}");
        assert!(explain("$weird/topic").contains("✗ refused (dollar_topic)"));
        assert!(explain("a/+/b").contains("wildcards"));
        let refusals = browser.text("return document.querySelector('#refusals').innerText");
        assert!(
            refusals.contains("$weird/topic") && refusals.contains("dollar_topic"),
            "{refusals}"
        );
        explain("device/7/x");

        let foreign = browser.run("return performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin) && !name.startsWith('data:'))");
        assert_eq!(foreign.as_array().map(Vec::len), Some(0), "{foreign}");
        // A topic that is not legal is answered with 400, which a browser notes.
        let said: Vec<_> = browser
            .console()
            .into_iter()
            .filter(|line| !line.contains("/api/explain"))
            .collect();
        assert_eq!(said, Vec::<String>::new());
        browser.run("document.activeElement.blur(); window.scrollTo(0, 0)");
        if std::env::var_os("E2E_PICTURES").is_some() {
            let points = "return document.querySelector('#rate-stored polyline').getAttribute('points').split(' ').length";
            wait::until("the curves are long enough", PATIENCE, || {
                browser.run(points).as_u64() > Some(10)
            });
        }
        picture(&browser, "status-page.png");
        browser.run("document.querySelector('#map-box').scrollIntoView()");
        picture(&browser, "status-page-map.png");
        browser.run("window.scrollTo(0, 0)");
        browser.resize(400, 1_400);
        let too_wide =
            browser.run("return document.documentElement.scrollWidth > window.innerWidth");
        picture(&browser, "status-page-phone.png");
        assert_eq!(too_wide, false, "the page is wider than a phone");
        stop.store(true, Ordering::SeqCst);
        if std::env::var_os("E2E_PICTURES").is_some() {
            let dark = Browser::start(1_200, 1_200, true);
            dark.open(&url);
            thread::sleep(Duration::from_secs(2));
            picture(&dark, "status-page-dark.png");
        }
        drop(stuck);
    });

    deployment.host.kill();
    let banner = || {
        browser.text("return document.querySelector('#stale').hidden ? '' : document.querySelector('#stale').innerText")
    };
    wait::until("old numbers look old", PATIENCE, || {
        banner().contains("cannot be reached")
    });
    assert!(banner().contains("old"), "{}", banner());
    let badge = browser.text("return document.querySelector('#ready').innerText");
    assert_eq!(badge, "? unknown");
    picture(&browser, "status-page-stale.png");
    deployment.host.start();
    wait::until("it is live again", PATIENCE, || banner().is_empty());
}
