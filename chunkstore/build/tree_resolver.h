#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/external_sorter.h"
#include "chunkstore/build/layer_builder.h"
#include "chunkstore/build/node.h"
#include "chunkstore/build/resolved_tree.h"

namespace varve::chunkstore {

/// Turns entries that come in any order into a tree (varve-erofs(5), "Making a layer"):
///   - of several entries for one path the last to arrive counts; a directory keeps its children;
///   - a hard link names the inode that its target had when the link arrived or, if it had none
///     yet, the first one afterwards; chains are followed;
///   - directories that are only implied are made;
///   - a whiteout beside an entry for the same path, or above one, makes an opaque directory of it
///     (nothing, where the entry is no directory); an opaque mark makes or marks a directory.
/// Loop-local: add() for every entry, then resolve() once.
class TreeResolver {
 public:
  using BaseDirectory =
      std::function<Result<std::optional<DirectoryAttributes>>(std::string_view path)>;

  TreeResolver(size_t sort_memory_bytes, const std::string& temp_directory,
               BaseDirectory base_directory);

  /// A path and what is there. Returns the entry's sequence number: 0, 1, 2, …
  Result<uint32_t> add_node(std::string_view path, const Node& node);
  Result<uint32_t> add_hard_link(std::string_view path, std::string_view target);
  Result<uint32_t> add_whiteout(std::string_view path);
  Result<uint32_t> add_opaque(std::string_view path);

  /// Fills and finishes `tree`. Errors (kInvalidArgument, naming the paths): see
  /// LayerBuilder::finish.
  Status resolve(ResolvedTree& tree);

  /// Whether hard links lead to the inode of entry `sequence`; after resolve().
  bool is_linked(uint32_t sequence) const {
    return sequence < is_linked_.size() && is_linked_[sequence];
  }

 private:
  enum class RecordKind : uint8_t { kNode, kHardLink, kWhiteout, kOpaque };
  /// An entry proper: a node or a hard link.
  struct Record {
    RecordKind kind;
    uint32_t sequence;
    Bytes value;
  };
  /// What counts of all entries for one path.
  struct Group {
    std::optional<Record> real;  ///< The last to arrive.
    bool has_whiteout = false;
    bool has_opaque = false;
  };
  struct OpenDirectory {
    size_t key_size;  ///< Its key is that much of open_key_.
    bool is_directory;
    bool hides_base;  ///< What layers below have under it is not seen.
  };
  /// Why a directory that no entry describes is made.
  enum class Implied {
    kByChild,     ///< Something lies below it.
    kByOpaque,    ///< It is marked opaque: the base's directory, without its children.
    kByWhiteout,  ///< It is hidden, and something lies below it: a new directory.
  };

  Result<uint32_t> add(std::string_view path, RecordKind kind, ByteView value);
  Status resolve_links();
  Status answer_link(SortedCursor& links,
                     const std::vector<std::pair<uint32_t, uint8_t>>& versions);
  Status follow_chains();
  Result<std::string> path_of(uint32_t sequence) const;
  Status read_group(SortedCursor& entries, std::string_view key, Group& group);
  Status take_group(std::string_view key, const Group& group);
  Status open_parents(std::string_view key);
  void push_open(std::string_view key, bool is_directory, bool hides_base);
  std::string_view last_open_key() const {
    return std::string_view(open_key_).substr(0, open_.back().key_size);
  }
  Status emit_implied(std::string_view key, Implied why);
  Status emit_whiteout(std::string_view key);
  Status settle_pending_whiteout(std::string_view next_key);
  Status emit_record(std::string_view key, const Record& record, bool is_opaque);

  std::string temp_directory_;
  BaseDirectory base_directory_;
  ExternalSorter entries_;
  ExternalSorter links_;  ///< By the arrival key of the target; value: path of the link.
  uint32_t sequence_count_ = 0;

  // Links only: by sequence.
  std::vector<uint32_t> link_roots_;
  std::vector<uint8_t> types_;
  std::vector<bool> is_linked_;

  ResolvedTree* tree_ = nullptr;
  std::vector<OpenDirectory> open_;  ///< The directories above the current path.
  std::string open_key_;             ///< Of the one that was opened last.
  std::optional<std::string> pending_whiteout_;
};

}  // namespace varve::chunkstore
