"""gRPC's interoperability cases (grpc/doc/interop-test-descriptions.md), with grpcio as client and server and the
activator between them. Each case runs twice: the revision is awake, and it sleeps when the call begins.

Messages are bytes of the described sizes; what is in them is nobody's business on the way. Usage:
grpc_interop.py FAULTS-BINARY
"""

import json
import sys
import threading
from concurrent import futures

import grpc

from front import Front

SERVICE = "/grpc.testing.TestService/"
REQUEST = b"\x00" * 271828
ANSWER_SIZE = 314159
SIZES = [31415, 9, 2653, 58979]
UPLOADS = [27182, 8, 1828, 45904]
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP \U0001f608\t\n"
WITHIN = 20


class Server(grpc.GenericRpcHandler):
    """What a request asks for stands in its metadata, as JSON."""

    def __init__(self):
        self.cancelled = threading.Semaphore(0)

    def service(self, call):
        method = call.method.removeprefix(SERVICE)
        if call.method == method:
            return None
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return {
            "EmptyCall": unary(self.unary),
            "UnaryCall": unary(self.unary),
            "StreamingInputCall": grpc.stream_unary_rpc_method_handler(self.collect),
            "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(self.spread),
            "FullDuplexCall": stream(self.duplex),
        }.get(method)

    def wanted(self, context):
        metadata = dict(context.invocation_metadata())
        context.add_callback(self.cancelled.release)
        if "x-grpc-test-echo-initial" in metadata:
            context.send_initial_metadata([("x-grpc-test-echo-initial", metadata["x-grpc-test-echo-initial"])])
        if "x-grpc-test-echo-trailing-bin" in metadata:
            context.set_trailing_metadata([("x-grpc-test-echo-trailing-bin", metadata["x-grpc-test-echo-trailing-bin"])])
        wanted = json.loads(metadata.get("x-wanted", "{}"))
        if "code" in wanted:
            code = next(code for code in grpc.StatusCode if code.value[0] == wanted["code"])
            context.abort(code, wanted["message"])
        return wanted

    def unary(self, request, context):
        wanted = self.wanted(context)
        assert len(request) == wanted.get("request", 0), len(request)
        return b"\x00" * wanted.get("size", 0)

    def collect(self, requests, context):
        self.wanted(context)
        return str(sum(len(request) for request in requests)).encode()

    def spread(self, request, context):
        for size in self.wanted(context)["sizes"]:
            yield b"\x00" * size

    def duplex(self, requests, context):
        self.wanted(context)
        for request in requests:
            size = int(request[:16])
            if size < 0:
                gone = threading.Event()
                context.add_callback(gone.set)
                gone.wait(WITHIN)  # Longer than the client's deadline.
                return
            yield b"\x00" * size


def message(answer, size=16):
    return str(answer).encode().ljust(16).ljust(size, b"\x00")


class Client:
    def __init__(self, channel, server):
        self.channel, self.server = channel, server

    def call(self, kind, method, *arguments, wanted=None, metadata=(), timeout=WITHIN, **more):
        metadata = [*metadata, ("x-wanted", json.dumps(wanted or {}))]
        callable_ = getattr(self.channel, kind)(SERVICE + method)
        return callable_(*arguments, metadata=metadata, timeout=timeout, **more)

    def was_cancelled(self):
        if not self.server.cancelled.acquire(timeout=WITHIN):
            raise AssertionError("the server's call goes on")

    def empty_unary(self):
        assert self.call("unary_unary", "EmptyCall", b"") == b""

    def large_unary(self):
        wanted = {"request": len(REQUEST), "size": ANSWER_SIZE}
        assert len(self.call("unary_unary", "UnaryCall", REQUEST, wanted=wanted)) == ANSWER_SIZE

    def compressed_unary(self):
        wanted = {"request": len(REQUEST), "size": ANSWER_SIZE}
        answer = self.call("unary_unary", "UnaryCall", REQUEST, wanted=wanted, compression=grpc.Compression.Gzip)
        assert len(answer) == ANSWER_SIZE

    def client_streaming(self):
        uploads = (b"\x00" * size for size in UPLOADS)
        assert self.call("stream_unary", "StreamingInputCall", uploads) == str(sum(UPLOADS)).encode()

    def server_streaming(self):
        answers = self.call("unary_stream", "StreamingOutputCall", b"", wanted={"sizes": SIZES})
        assert [len(answer) for answer in answers] == SIZES

    def ping_pong(self):
        turns, ready = [], threading.Semaphore(1)

        def requests():
            for size, upload in zip(SIZES, UPLOADS):
                assert ready.acquire(timeout=WITHIN), "no answer to the message before"
                yield message(size, max(upload, 16))

        for answer in self.call("stream_stream", "FullDuplexCall", requests()):
            turns.append(len(answer))
            ready.release()
        assert turns == SIZES, turns

    def empty_stream(self):
        assert list(self.call("stream_stream", "FullDuplexCall", iter(()))) == []

    def cancel_after_begin(self):
        stop = threading.Event()

        def requests():
            stop.wait(WITHIN)
            return
            yield

        callable_ = self.channel.stream_unary(SERVICE + "StreamingInputCall")
        call = callable_.future(requests(), timeout=WITHIN)
        call.cancel()
        stop.set()
        assert call.cancelled() and call.code() == grpc.StatusCode.CANCELLED, call.code()

    def cancel_after_first_response(self):
        stop = threading.Event()

        def requests():
            yield message(SIZES[0], UPLOADS[0])
            stop.wait(WITHIN)

        call = self.call("stream_stream", "FullDuplexCall", requests())
        assert len(next(call)) == SIZES[0]
        call.cancel()
        stop.set()
        assert call.code() == grpc.StatusCode.CANCELLED, call.code()
        self.was_cancelled()

    def timeout_on_sleeping_server(self):
        call = self.call("stream_stream", "FullDuplexCall", iter([message(-1, UPLOADS[0])]), timeout=1)
        self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, None, lambda: next(call))

    def status_code_and_message(self):
        self.status(2, "test status message")

    def special_status_message(self):
        self.status(2, SPECIAL)

    def status(self, code, text):
        wanted = {"code": code, "message": text}
        self.fails(grpc.StatusCode.UNKNOWN, text, lambda: self.call("unary_unary", "UnaryCall", b"", wanted=wanted))
        duplex = self.call("stream_stream", "FullDuplexCall", iter([message(1)]), wanted=wanted)
        self.fails(grpc.StatusCode.UNKNOWN, text, lambda: next(duplex))

    def unimplemented_method(self):
        self.fails(grpc.StatusCode.UNIMPLEMENTED, None, lambda: self.call("unary_unary", "UnimplementedCall", b""))

    def unimplemented_service(self):
        other = self.channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")
        self.fails(grpc.StatusCode.UNIMPLEMENTED, None, lambda: other(b"", timeout=WITHIN))

    def custom_metadata(self):
        initial, trailing = ("x-grpc-test-echo-initial", "test_initial_metadata_value"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")
        unary = self.channel.unary_unary(SERVICE + "UnaryCall").with_call(b"", metadata=[initial, trailing], timeout=WITHIN)[1]
        duplex = self.call("stream_stream", "FullDuplexCall", iter([message(5)]), metadata=[initial, trailing])
        assert [len(answer) for answer in duplex] == [5]
        for call in (unary, duplex):
            assert initial in tuple(map(tuple, call.initial_metadata())), call.initial_metadata()
            assert trailing in tuple(map(tuple, call.trailing_metadata())), call.trailing_metadata()

    @staticmethod
    def fails(code, details, call):
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == code, f"{error.code()}: {error.details()}"
            assert details is None or error.details() == details, repr(error.details())
        else:
            raise AssertionError(f"no {code}")


CASES = [name for name, value in vars(Client).items() if callable(value) and name not in
         ("__init__", "call", "was_cancelled", "status", "fails")]


def main(binary):
    handlers = Server()
    server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([handlers])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    front = Front(binary, f"127.0.0.1:{port}", "--h2c")
    failed = 0
    for state in ("awake", "asleep"):
        for name in CASES:
            handlers.cancelled = threading.Semaphore(0)
            options = [("grpc.default_authority", "app.ns"), ("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(front.address, options=options) as channel:
                # What is given up on purpose is not waited for.
                given_up = name in ("cancel_after_begin", "timeout_on_sleeping_server")
                waker = threading.Thread(target=lambda: [front.tell(word) for word in ("held", "wake")])
                if state == "asleep":
                    front.tell("sleep")
                    if not given_up:
                        waker.start()
                try:
                    getattr(Client(channel, handlers), name)()
                    print(f"{state:>6} {name}: passed")
                except Exception as error:  # A case may fail in any way.
                    failed += 1
                    print(f"{state:>6} {name}: FAILED {type(error).__name__} {error}")
                if state == "asleep":
                    front.tell("wake") if given_up else waker.join()
            front.tell("idle")
    print(f"gRPC: {2 * len(CASES) - failed} of {2 * len(CASES)} passed")
    front.close()
    server.stop(None)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
