"""Writes shards with invalid parts and valid checksums, in the byte format of mh-shard(5).

    shard_bytes.py SHARD OUT CODE   reads the header of SHARD, a shard of text; runs the Python CODE, which changes the object `s` of
                                    the class Shard; writes the changed shard to OUT
"""
import json
import struct
import sys

import checkpoint_header

HEADER, TRAILER, SEEK = 0x184D2A50, 0x184D2A51, 0x184D2A5E


def xxh64(data):
    return int(checkpoint_header.xxh64(data), 16)


def skippable(magic, payload):
    return struct.pack("<II", magic, len(payload)) + payload


def with_checksum(tag, text, tail=b"", text_bytes=None):
    """Returns the payload of a header or trailer frame."""
    payload = tag + struct.pack("<Q", len(text) if text_bytes is None else text_bytes) + text + tail
    return payload + struct.pack("<Q", xxh64(payload))


def zstd(content):
    """Returns a zstd frame with one raw block, the content size and the checksum of `content`, which has at most 255 bytes."""
    block = struct.pack("<I", 1 | len(content) << 3)[:3]
    return struct.pack("<IBB", 0xFD2FB528, 0x24, len(content)) + block + content + struct.pack("<I", xxh64(content) & 0xFFFFFFFF)


def zstd_zeros(size, start=b""):
    """Returns a zstd frame of a few bytes for each 128 KiB of its content: `start`, then `size` zero bytes."""
    max_block, raw, repeated_byte = 1 << 17, 0, 1
    blocks = [(raw, len(start), start)] if start else []
    blocks += [(repeated_byte, min(max_block, size - i), b"\0") for i in range(0, size, max_block)]
    encoded = b"".join(struct.pack("<I", (i == len(blocks) - 1) | kind << 1 | n << 3)[:3] + data for i, (kind, n, data) in enumerate(blocks))
    return struct.pack("<IBI", 0xFD2FB528, 0xA4, len(start) + size) + encoded + struct.pack("<I", xxh64(start + bytes(size)) & 0xFFFFFFFF)


class Shard:
    """A shard of one record: the parts that the code may change, before their checksums are computed."""

    def __init__(self, shard):
        payload_bytes, = struct.unpack_from("<I", shard, 4)
        json_bytes, = struct.unpack_from("<Q", shard, 16)
        self.header = json.loads(shard[24:24 + json_bytes])
        self.header_text = None  # replaces the JSON text of the header
        self.json_bytes = None   # replaces the size of the JSON text of the header
        self.tokenizer = shard[24 + json_bytes:payload_bytes]
        self.content = b"".join(token.to_bytes(self.header["token_bytes"], "little") for token in (1, 2, 0))
        self.varints = b"\3"
        self.lengths = None      # replaces the compressed sequence lengths
        self.token_frame = None  # replaces the frame of tokens
        self.trailer = {}        # replaces entries of the trailer
        self.without = ""        # key that the trailer lacks
        self.descriptor = 0
        self.copies = 1          # number of copies of the frame of tokens
        self.num_frames = None   # number of frames that the shard has and the seek table lists; None: all

    def bytes(self):
        text = json.dumps(self.header).encode() if self.header_text is None else self.header_text
        trailer = {"tokens": 3, "records": 1, "text_bytes": 9, "content_xxh64": xxh64(self.content), "lengths_xxh64": xxh64(self.varints),
                   "runs": 1, "lengths_bytes": len(self.varints), **self.trailer}
        trailer.pop(self.without, None)
        frames = [(skippable(HEADER, with_checksum(b"MHSHARD1", text, self.tokenizer, self.json_bytes)), 0),
                  *[(self.token_frame or zstd(self.content), len(self.content))] * self.copies,
                  (skippable(TRAILER, b"MHLENGT1" + (self.lengths or zstd(self.varints))), 0),
                  (skippable(TRAILER, with_checksum(b"MHTRAIL1", json.dumps(trailer).encode())), 0)][:self.num_frames]
        table = b"".join(struct.pack("<II", len(frame), size) for frame, size in frames)
        table += struct.pack("<IBI", len(frames), self.descriptor, 0x8F92EAB1)
        return b"".join(frame for frame, _ in frames) + skippable(SEEK, table)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        s = Shard(file.read())
    exec(sys.argv[3])
    with open(sys.argv[2], "wb") as file:
        file.write(s.bytes())
