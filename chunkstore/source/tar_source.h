#pragma once

#include <memory>
#include <string>

#include "chunkstore/source/byte_stream.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

enum class TarMode {
  kPlain,     ///< Names are content, whatever they look like.
  kOciLayer,  ///< `.wh.NAME` is a whiteout of NAME, `.wh..wh..opq` makes its directory opaque.
};

/// The entries of a tar archive, compressed or not (byte_stream.h, decompress()).
///
/// Numeric ids are used, names of owners never looked up. A `SCHILY.acl.*` record becomes the xattr
/// that the kernel would store, unless that xattr is in the archive itself. Errors
/// (kInvalidArgument, kUnsupported) name `name` and the member: absolute and `..` names, types a
/// filesystem does not have, ids over 2^32-1, character device 0:0 (a whiteout is not content),
/// truncation anywhere, even after the last member.
/// OCI layers: other `.wh..wh.*` names are notes of the aufs driver and skipped.
std::unique_ptr<EntrySource> make_tar_source(std::unique_ptr<ByteStream> from, std::string name,
                                             TarMode mode);

/// Opens `path`, or standard input when it is "-".
Result<std::unique_ptr<EntrySource>> open_tar_source(const std::string& path, TarMode mode);

}  // namespace varve::chunkstore
