//! The listener of a test workload.

use std::convert::Infallible;
use std::process::ExitCode;
use tokio::net::{TcpListener, TcpStream};

/// Serves each connection in its own task, at `HOST` and `PORT` (default: `port`), until the process is killed.
pub fn run<S>(port: &str, serve: impl Fn(TcpStream) -> S) -> ExitCode
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    match tokio::runtime::Runtime::new().and_then(|runtime| runtime.block_on(listen(port, serve))) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("the workload cannot listen: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn listen<S>(port: &str, serve: impl Fn(TcpStream) -> S) -> std::io::Result<Infallible>
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let listener = TcpListener::bind(format!("{}:{}", variable("HOST", "127.0.0.1"), variable("PORT", port))).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}
