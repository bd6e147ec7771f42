//! A small web site on a loopback port: pages by path, and a ledger of what they report.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::http::{Delivery, HttpAnswer, HttpRequest};
use super::ledger::Ledger;

/// The site. What a page POSTs to it, wherever, is a report.
pub struct Site(Arc<Shared>);

struct Shared {
    port: u16,
    pages: Vec<(String, String)>,
    reports: Ledger<String>,
    ended: AtomicBool,
}

impl Site {
    /// Serves each page at its path; a path that ends with `.js` is a script.
    pub fn start<'a>(pages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a loopback port");
        let shared = Arc::new(Shared {
            port: listener.local_addr().expect("a bound port").port(),
            pages: pages.into_iter().map(|(path, page)| (path.to_owned(), page.to_owned())).collect(),
            reports: Ledger::default(),
            ended: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || serving.accept(&listener));
        Self(shared)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.0.port)
    }

    /// Waits until so many reports have come, and gives the last of them.
    #[track_caller]
    pub fn wait_for_report(&self, number: usize) -> String {
        self.0.reports.wait_until("a page's report", |seen| seen.len() >= number);
        self.0.reports.all().swap_remove(number - 1)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        // Wakes the listener; when that fails, it has ended already.
        let _ = TcpStream::connect(("127.0.0.1", self.0.port));
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let site = self.clone();
            std::thread::spawn(move || site.serve(stream));
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some(request) = HttpRequest::read(&mut stream) else { return };
        if request.method == "POST" {
            self.reports.write(String::from_utf8_lossy(&request.body).into_owned());
        }
        let page = self.pages.iter().find(|(path, _)| *path == request.path.split('?').next().unwrap_or_default());
        let (status, body) = page.map_or((404, ""), |(_, body)| (200, body));
        let kind = if request.path.ends_with(".js") { "text/javascript" } else { "text/html; charset=utf-8" };
        let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
        let answer = HttpAnswer { status, headers, body: body.into(), delivery: Delivery::Whole };
        // The browser may have gone on.
        let _ = answer.deliver(stream);
    }
}
