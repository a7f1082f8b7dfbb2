"""Autobahn's test suite for WebSockets: its fuzzing client, the activator, and a server by the library websockets, whose
interpreter runs this. Each case must end as it does without the activator. Ends that the suite takes for good count as
the same: some depend on how the bytes come in parts.
Usage: autobahn.py FAULTS-BINARY WSTEST FOLDER
"""

import json
import os
import subprocess
import sys

from front import Front, free_port, until_listening

# How a case may end; the last two say what is measured, or what the standard leaves open.
GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}


def fuzz(wstest, folder, name, address, cases):
    """Runs the cases against `address`, and returns how each ended."""
    reports = os.path.join(folder, name)
    spec = {
        "outdir": reports,
        "servers": [{"agent": name, "url": f"ws://{address}", "options": {"version": 18}}],
        "cases": cases,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w") as file:
        json.dump(spec, file)
    with open(os.path.join(folder, f"{name}.log"), "w") as log:
        subprocess.run([wstest, "-m", "fuzzingclient", "-s", path], stdout=log, stderr=log, check=True)
    with open(os.path.join(reports, "index.json")) as file:
        return {case: (end["behavior"], end["behaviorClose"]) for case, end in json.load(file)[name].items()}


def main(binary, wstest, folder):
    os.makedirs(folder, exist_ok=True)
    # 9 measures large messages and 12 and 13 compression, a thousand messages a case: all of them take minutes.
    cases = os.environ.get("AUTOBAHN_CASES", "*").split(",")
    port = free_port()
    with open(os.path.join(folder, "echo.log"), "w") as log:
        server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "echo.py")
        echo = subprocess.Popen([sys.executable, server, str(port)], stdout=log, stderr=log)
    try:
        until_listening(port)
        front = Front(binary, f"127.0.0.1:{port}", "--host", "127.0.0.1")
        through = fuzz(wstest, folder, "activator", front.address, cases)
        front.tell("idle")
        front.close()
        direct = fuzz(wstest, folder, "direct", f"127.0.0.1:{port}", cases)
    finally:
        echo.terminate()
        echo.wait()
    failed = 0
    for case in sorted(direct, key=lambda name: [int(part) for part in name.split(".")]):
        end = through.get(case, ("MISSING", "MISSING"))
        if end != direct[case] and not set(end) | set(direct[case]) <= GOOD:
            failed += 1
            print(f"{case}: {end} through the activator, {direct[case]} without it")
        elif not set(end) <= GOOD:
            print(f"{case}: {end}, with the activator and without it")
    print(f"Autobahn: {len(direct) - failed} of {len(direct)} passed")
    return 1 if failed or not direct else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
