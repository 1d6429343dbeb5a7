#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/chunk_sink.h"
#include "chunkstore/format/layer.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// What a directory is made with when entries lie below it but none describes it. Value type.
struct DirectoryAttributes {
  uint16_t mode = 0755;  ///< Permission bits.
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  std::map<std::string, std::string> xattrs;  ///< As in Entry: overlay names not escaped.
};

/// A char device 0:0 is how overlayfs marks a whiteout, so it cannot be content of a layer.
enum class CharDeviceZero {
  kRefuse,    ///< kInvalidArgument, naming the path.
  kWhiteout,  ///< The source is an overlay's upper directory: it is a whiteout.
};

struct LayerBuilderOptions {
  /// What sorting may hold in memory before it spills, bytes. Beside it a build holds ~4 to 25
  /// bytes an entry, ~40 a chunk and ~40 MiB of buffers. The layer does not depend on it.
  size_t sort_memory_bytes = 96u << 20;
  /// Where spilled, unlinked files lie; "" = $TMPDIR or /var/tmp.
  std::string temp_directory;
  /// Deferred files that are read at the same time.
  size_t reader_thread_count = 8;
  CharDeviceZero char_device_zero = CharDeviceZero::kRefuse;
  /// Attributes of directory `path` in the layers below, for directories that are only implied;
  /// unset, or nothing returned: root's, 0755, mtime 0.
  std::function<Result<std::optional<DirectoryAttributes>>(std::string_view path)> base_directory;
};

struct LayerCounts {
  uint64_t inodes = 0;
  uint64_t names = 0;  ///< Paths, the root included; hard links count each.
  uint64_t directories = 0;
  uint64_t regular_files = 0;  ///< Inodes.
  uint64_t whiteouts = 0;
  uint64_t opaque_directories = 0;
  uint64_t file_bytes = 0;    ///< Sum of the sizes of regular files, each inode once.
  uint64_t hole_bytes = 0;    ///< Part of it that is holes.
  uint64_t shared_files = 0;  ///< Files whose blocks another file has too.
};

/// A layer whose chunks are all in the sink; publish_layer makes it visible.
struct BuiltLayer {
  uint64_t image_size = 0;     ///< Bytes, a multiple of 4,096.
  uint64_t metadata_size = 0;  ///< Bytes from the start of the image; a chunk boundary.
  uint32_t root_nid = 0;
  std::vector<LayerChunk> chunks;  ///< In image order; each is in the sink or was an input's.
  /// Ids ≥ 65,536 that occur as uid, gid or in a POSIX ACL, each with the first path that has it.
  std::map<uint32_t, std::string> high_ids;
  LayerCounts counts;
  bool is_root_opaque = false;  ///< Nothing of the layers below it is visible.
};

/// Makes a layer from entries that come in any order (varve-erofs(5), "Making a layer"): the same
/// tree gives the same layer, whatever the order of entries and the kind of source.
///
/// Large files from streams are cut and submitted as they arrive; small ones and all metadata are
/// sorted, spilling to an unlinked file where they exceed the budget; deferred files are read in
/// image order during finish(). One thread calls it; it starts threads of its own.
///
/// A directory that holds a whiteout gets `trusted.overlay.origin` with an empty value. Without it
/// overlayfs lists the whiteouts of a directory that is merged with nothing below it (opaque, or
/// new in this layer) as names that cannot be looked up; tests/kernel/merged_tree shows it. Source:
/// ovl_get_inode() in Linux fs/overlayfs/inode.c, "non-merge dir that may have whiteouts".
class LayerBuilder final : public EntrySink {
 public:
  /// `sink` must outlive the builder.
  LayerBuilder(LayerBuilderOptions options, ChunkSink& sink);
  ~LayerBuilder() override;

  /// Errors (kInvalidArgument, naming the path): a name, target, xattr or size outside the format,
  /// content of another length than `entry.size`; what the stream or the sink reports.
  Status add(Entry entry) override;
  /// Errors (kInvalidArgument, naming both paths): an entry below something that is no directory, a
  /// hard link without a target, to itself or to a directory. Call once, after the last add().
  Result<BuiltLayer> finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace varve::chunkstore
