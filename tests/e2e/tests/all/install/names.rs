//! Inside an image: the files in its root are sufficient for the binary to resolve the name of a Service.

use crate::install::site::SYSTEM;
use anyhow::{Context, bail, ensure};
use e2e::bare;
use e2e::netns::Namespace;
use e2e::process::find;
use serde_json::{Value, json};
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tokio::task::block_in_place;
use tokio::time::Instant;

/// `resolv.conf` as a kubelet writes it for a Pod of the system namespace.
const RESOLV_CONF: &str = "search zeroscale-system.svc.cluster.local svc.cluster.local cluster.local\n\
                           nameserver 127.0.0.1\noptions ndots:5\n";
const NAME: &str = "kubernetes.default.svc.cluster.local";
const PATIENCE: Duration = Duration::from_secs(60);

/// Goal: each image resolves names like a Pod without further files. Method: the binary runs in its image's root, as
/// the image's user, with a kubelet's files, and looks up its API server by name. A name server responds, and the API
/// server gets a request.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_resolves_names_of_services() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    // An image contains no CAs: a Pod gets its API server's CA.
    let (server, _) = bare::start("127.203.128.0/17").await?;
    let mut kubeconfig: Value = serde_yaml_ng::from_str(&server.kubeconfig())?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!("http://kubernetes.default.svc:6443");
    kubeconfig["users"][0]["user"] = json!({});
    for binary in ["activator", "autoscaler", "autoscaler-hpa"] {
        let root = folder.path().join(binary);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/images/root");
        let made = Command::new(script).arg(find(binary)?).arg(&root).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(root.join("etc/resolv.conf"), RESOLV_CONF)?;
        std::fs::write(root.join("kubeconfig"), kubeconfig.to_string())?;
        let request = block_in_place(|| Namespace::start()?.within(move || first_request(binary, root)))?;
        let head = request.to_ascii_lowercase();
        ensure!(head.contains("host: kubernetes.default.svc:6443"), "{binary}: {request}");
    }
    Ok(())
}

/// Process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have ended.
        let _ = self.0.wait();
    }
}

/// Starts the binary in `root` and returns the head of its first request.
fn first_request(binary: &str, root: PathBuf) -> anyhow::Result<String> {
    let (queries, questions) = mpsc::channel();
    let names = UdpSocket::bind("127.0.0.1:53")?;
    let api = TcpListener::bind("127.0.0.1:6443")?;
    api.set_nonblocking(true)?;
    let stop = names.try_clone()?;
    let serving = std::thread::spawn(move || serve_names(&names, &queries));
    let mut command = Command::new("chroot");
    command.arg("--userspec=65532:65532").arg(root).arg(format!("/{binary}"));
    if binary == "autoscaler-hpa" {
        command.arg("--hpa=native");
    }
    command.env_clear().envs([
        ("KUBECONFIG", "/kubeconfig"),
        ("POD_NAME", "a-0"),
        ("POD_IP", "127.0.0.1"),
        ("SYSTEM_NAMESPACE", SYSTEM),
        ("ZEROSCALE_MODE", "standalone"),
        ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
    ]);
    let child = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let deadline = Instant::now() + PATIENCE;
    let mut stream = loop {
        match api.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline {
                    bail!("{binary} sent no request; it looked up {:?}", questions.try_iter().collect::<Vec<_>>());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = [0; 1024];
    let length = stream.read(&mut head)?;
    drop(child);
    // An empty packet ends the name server.
    stop.send_to(&[], stop.local_addr()?)?;
    serving.join().ok().context("the name server panicked")??;
    ensure!(questions.iter().any(|name| name == NAME), "{NAME} was not looked up");
    Ok(String::from_utf8_lossy(&head[..length]).into_owned())
}

/// Serves one name with only an IPv4 address, and reports the queried names.
fn serve_names(socket: &UdpSocket, queries: &mpsc::Sender<String>) -> anyhow::Result<()> {
    let mut packet = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut packet)?;
        if length == 0 {
            return Ok(());
        }
        let question = packet.get(12..length).context("a question")?;
        let (name, end) = read_name(question)?;
        let kind = question.get(end..end + 4).context("type and class")?;
        let (known, is_v4) = (name == NAME, kind[..2] == [0, 1]);
        let mut answer = packet[..2].to_vec();
        let (code, count) = (if known { 0 } else { 3 }, u8::from(known && is_v4));
        answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
        answer.extend(&question[..end + 4]);
        if count == 1 {
            // The name of the question, type A, class IN, 5 s, four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
        }
        socket.send_to(&answer, from)?;
        let _ = queries.send(name); // The receiver may have ended.
    }
}

/// Parses a name in a question; returns it with the position of its end.
fn read_name(question: &[u8]) -> anyhow::Result<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*question.get(at).context("a name that ends")?);
        at += 1;
        if length == 0 {
            return Ok((labels.join("."), at));
        }
        let label = question.get(at..at + length).context("a label")?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}
