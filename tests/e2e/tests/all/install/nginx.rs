//! Behind another ingress: nginx, configured like ingress-nginx for `deploy/samples/ingress.yaml`.

use crate::install::site::free_address;
use anyhow::{Context, ensure};
use bytes::Bytes;
use e2e::space::{SOON, until};
use e2e::{Load, Process, TestEnv, Workload};
use futures::{SinkExt, StreamExt};
use http::Method;
use local::up::UpOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_tungstenite::tungstenite::Message;

const HELLO: &str = "hello.example.com";
const STREAMS: &str = "streams.example.com";
/// Size of a large body in bytes.
const LARGE: usize = 32 << 20;

/// Returns ingress-nginx's configuration of a host with the sample's annotations: the Service's address instead of its
/// endpoints, and no buffering of requests. Everything else is the default.
fn server(listen: SocketAddr, host: &str, service: SocketAddr) -> String {
    let upstream = host.replace('.', "-");
    format!(
        "upstream {upstream} {{ server {service}; keepalive 320; keepalive_timeout 60s; keepalive_requests 10000; }}
         server {{
           listen {listen}; server_name {host};
           location / {{
             client_max_body_size 0;
             proxy_set_header Host $http_host;
             proxy_set_header Upgrade $http_upgrade;
             proxy_set_header Connection $connection_upgrade;
             proxy_set_header X-Request-ID $request_id;
             proxy_set_header X-Real-IP $remote_addr;
             proxy_set_header X-Forwarded-For $remote_addr;
             proxy_set_header X-Forwarded-Host $http_host;
             proxy_set_header X-Forwarded-Port $server_port;
             proxy_set_header X-Forwarded-Proto $scheme;
             proxy_connect_timeout 5s; proxy_send_timeout 60s; proxy_read_timeout 300s;
             proxy_buffering off; proxy_buffer_size 4k; proxy_buffers 4 4k;
             proxy_request_buffering off;
             proxy_http_version 1.1;
             proxy_next_upstream error timeout; proxy_next_upstream_tries 3;
             proxy_pass http://{upstream}; proxy_redirect off;
           }}
         }}\n"
    )
}

/// Starts nginx with all its files in `folder`.
async fn start(folder: &Path, servers: &[String], at: SocketAddr) -> anyhow::Result<Process> {
    let here = folder.display();
    let mut file = std::fs::File::create(folder.join("nginx.conf"))?;
    write!(
        file,
        "daemon off; master_process off; error_log stderr; pid {here}/pid;
         events {{ worker_connections 4096; }}
         http {{
           access_log off; default_type text/html;
           client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;
           uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
           map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
           {}
         }}\n",
        servers.concat()
    )?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
    let process = Process::spawn(command).context("nginx (Debian: nginx-light) is needed")?;
    until("nginx to listen; see its error output", async || TcpStream::connect(at).await.is_ok()).await?;
    Ok(process)
}

/// Goal: no request is lost behind nginx while a workload scales to zero and back; uploads, events and WebSockets pass
/// without buffering.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_behind_nginx() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let env = TestEnv::with_short_grace(UpOptions::default()).await?;
    env.deploy(&Workload::new("hello").set("hosts", vec![HELLO])).await?;
    let streams = Workload::new("streams").set("hosts", vec![STREAMS]).env("E2E_STREAMS", 1);
    env.deploy(&streams).await?;
    let at = SocketAddr::new(free_address()?, 8081);
    let (hello, streams) = (env.service_address("hello").await?, env.service_address("streams").await?);
    let servers = [server(at, HELLO, hello), server(at, STREAMS, streams)];
    let nginx = start(folder.path(), &servers, at).await?;

    let load = Load::new(at, HELLO);
    load.get_ok("/").await?;
    large_bodies_pass(at).await?;
    // While the last pod ends, and after it has ended.
    for _ in 0..2 {
        env.until(e2e::space::ASLEEP, "no replicas", async || Ok(env.replicas("hello").await? == 0)).await?;
        load.burst(50, "/").await.none_lost()?;
    }
    env.until_asleep("hello").await?;
    load.burst(50, "/").await.none_lost()?;

    // Each wakes the workload, or finds it awake.
    a_websocket_passes(at).await?;
    events_pass_one_by_one(at).await?;
    env.until_asleep("streams").await?;
    events_pass_one_by_one(at).await?;
    nginx.terminate().await?;
    env.end().await
}

/// Sends large bodies in both directions. The response does not begin before the upload has ended, since nginx aborts
/// such uploads.
async fn large_bodies_pass(at: SocketAddr) -> anyhow::Result<()> {
    let sent: Bytes = (0..LARGE).map(|i| i.to_le_bytes()[1]).collect();
    let expected = format!("{LARGE} {}", sent.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let received = Load::new(at, STREAMS).send(Method::POST, "/upload", sent).await?.ok()?.text();
    ensure!(received == expected, "{received:?} of {expected}");
    let back = Load::new(at, HELLO).get_ok(&format!("/?bytes={LARGE}")).await?;
    ensure!(back.body.len() == LARGE, "{} bytes", back.body.len());
    Ok(())
}

async fn a_websocket_passes(at: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(at).await?;
    let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{STREAMS}/ws"), stream).await?;
    for message in [Message::text("hello"), Message::binary(vec![7_u8; 1 << 20])] {
        socket.send(message.clone()).await?;
        let back = socket.next().await.context("closed")??;
        ensure!(back == message, "another message came back");
    }
    socket.close(None).await?;
    Ok(())
}

/// Reads events. The second event is sent when the first was received, so buffering it would hang the test.
async fn events_pass_one_by_one(at: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    let head = format!("GET /events HTTP/1.1\r\nHost: {STREAMS}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut received = Vec::new();
    read_until(&mut stream, &mut received, "data: first").await?;
    Load::new(at, STREAMS).get_ok("/release").await?;
    read_until(&mut stream, &mut received, "data: second").await
}

async fn read_until(stream: &mut TcpStream, received: &mut Vec<u8>, part: &str) -> anyhow::Result<()> {
    let reading = async {
        while !String::from_utf8_lossy(received).contains(part) {
            ensure!(stream.read_buf(received).await? > 0, "ended: {}", String::from_utf8_lossy(received));
        }
        Ok(())
    };
    tokio::time::timeout(SOON, reading).await.with_context(|| format!("{part:?} did not come"))?
}
