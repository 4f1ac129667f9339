# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Copies a zip member's compressed bytes from one archive into another.

`zipfile` can only copy by inflating and deflating again. A local header is written
by hand from the central directory's entry, whose sizes and checksum are final, and
the compressed bytes follow as they are.
"""

import struct
import zipfile

from fork import ForkError

# Signature, version, flags, method, time, date, crc, sizes, length of the name and
# of the extra field (APPNOTE 4.3.7).
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
HAS_DATA_DESCRIPTOR = 0x08
CHUNK = 1 << 20


def copy_raw(
    source: zipfile.ZipFile, entry: zipfile.ZipInfo, target: zipfile.ZipFile
) -> None:
    """Appends `entry` of `source` to `target`, which is open for writing.

    Raises:
        ForkError: the source is damaged.
    """
    read, write = source.fp, target.fp
    assert read is not None and write is not None
    read.seek(entry.header_offset)
    header = LOCAL_HEADER.unpack(read.read(LOCAL_HEADER.size))
    if header[0] != b"PK\x03\x04":
        raise ForkError(f"{source.filename} is damaged at {entry.filename}")
    read.seek(header[-2] + header[-1], 1)

    new = zipfile.ZipInfo(entry.filename, entry.date_time)
    new.compress_type = entry.compress_type
    new.external_attr = entry.external_attr
    new.create_system = entry.create_system
    # Sizes stand in the header that is written here; none follows the data.
    new.flag_bits = entry.flag_bits & ~HAS_DATA_DESCRIPTOR
    new.CRC = entry.CRC
    new.compress_size = entry.compress_size
    new.file_size = entry.file_size

    start = target.start_dir  # type: ignore[attr-defined]
    write.seek(start)
    new.header_offset = start
    write.write(new.FileHeader())
    left = entry.compress_size
    while left:
        data = read.read(min(left, CHUNK))
        if not data:
            raise ForkError(f"{source.filename} is cut off in {entry.filename}")
        write.write(data)
        left -= len(data)
    target.start_dir = write.tell()  # type: ignore[attr-defined]
    target.filelist.append(new)
    target.NameToInfo[new.filename] = new
    target._didModify = True  # type: ignore[attr-defined]
