"""A network partition between one process of a job and the others, by a TCP proxy on 127.0.0.1.

The process reaches the key-value store of the job at the port of the proxy. Gloo publishes the address of each process in the store; the proxy
replaces the addresses that the process publishes and reads by addresses of its own, so that the connections to other processes pass
through the proxy, too.
"""
import contextlib
import re
import socket
import threading
import time

HOST = "127.0.0.1"
GLOO_ADDRESS = re.compile(rb"\x02\x00(..)\x7f\x00\x00\x01", re.DOTALL)  # a sockaddr_in: AF_INET, port, 127.0.0.1


class Partition:
    def __init__(self, store_port):
        self.is_cut, self.sockets, self.proxy_ports, self.lock = threading.Event(), [], {}, threading.Lock()
        self.port = self.listen(store_port, 0, self.replace_addresses)

    def cut(self):
        """Ends all traffic between the process and the others. The connections stay open, so that neither side receives an error."""
        self.is_cut.set()

    def close(self):
        self.is_cut.set()
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def listen(self, target_port, port, change):
        """Forwards the connections to a port, 0 being a free port, to `target_port`, through the function `change`. Returns the port."""
        server = socket.socket()
        server.bind((HOST, port))
        server.listen()
        self.sockets.append(server)
        threading.Thread(target=self.accept, args=(server, target_port, change), daemon=True).start()
        return server.getsockname()[1]

    def accept(self, server, target_port, change):
        with contextlib.suppress(OSError):
            while True:
                client = server.accept()[0]
                self.sockets.append(client)
                threading.Thread(target=self.connect, args=(client, target_port, change), daemon=True).start()

    def connect(self, client, target_port, change):
        """Forwards a connection from the moment on at which a process listens at the target port."""
        target = None
        while target is None and not self.is_cut.is_set():
            with contextlib.suppress(ConnectionRefusedError):
                target = socket.create_connection((HOST, target_port))
                self.sockets.append(target)
                for source, sink in ((client, target), (target, client)):
                    threading.Thread(target=self.forward, args=(source, sink, change), daemon=True).start()
            time.sleep(0.02)

    def forward(self, source, sink, change):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.is_cut.is_set():
                    return
                sink.sendall(change(data))
            if not self.is_cut.is_set():
                sink.shutdown(socket.SHUT_WR)

    def replace_addresses(self, data):
        return GLOO_ADDRESS.sub(lambda match: match[0].replace(match[1], self.proxy_port_of(match[1])), data)

    def proxy_port_of(self, port_bytes):
        """Returns the two bytes of a port that the proxy forwards to the port of `port_bytes`."""
        with self.lock:
            port = int.from_bytes(port_bytes, "big")
            # Of two processes, the process with the larger port connects, where Gloo reads the two bytes of a port, in network order, as a
            # little-endian number. Adding 256 to a port adds 1 to this number, so the same process connects as without the proxy.
            for proxy_port in range(port + 256, 1 << 16, 256):
                with contextlib.suppress(OSError):
                    return self.proxy_ports.setdefault(port, self.listen(port, proxy_port, bytes)).to_bytes(2, "big")
            raise RuntimeError(f"no free port for the address {HOST}:{port}")
