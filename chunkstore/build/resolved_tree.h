#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chunkstore/build/external_sorter.h"
#include "chunkstore/build/node.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {

inline constexpr uint32_t kNoIndex = 0xFFFFFFFF;

/// One name of a finished tree. Views live until the cursor moves.
struct TreeName {
  uint32_t rank = 0;  ///< Position in breadth-first order: depth, then path. The root is 0.
  uint32_t depth = 0;
  std::string_view path_key;  ///< See path_key.h.
  erofs::FileType type = erofs::FileType::kUnknown;
  bool is_opaque = false;
  bool is_linked = false;  ///< Its inode was the target of a hard link.
  /// Of the entry that made the inode; kNoIndex for directories that are only implied.
  uint32_t sequence = kNoIndex;
  ByteView encoded_node;  ///< Empty when is_linked.

  std::string_view name() const { return path_key.substr(path_key.rfind('\0') + 1); }
};

/// A finished tree: names in breadth-first order, and the inodes that have several names. Filled
/// by a resolver, then read by any number of cursors. Loop-local.
class ResolvedTree {
 public:
  /// @param sort_memory_bytes  Shared by both sorters.
  ResolvedTree(size_t sort_memory_bytes, const std::string& temp_directory);

  /// Adds a name. `node` is null for a linked one.
  Status add_name(std::string_view path_key, erofs::FileType type, bool is_opaque,
                  uint32_t sequence, const Node* node);
  /// The inode of linked names that carry `sequence`; called once for each such inode, also when
  /// no name survives.
  Status add_linked_node(uint32_t sequence, const Node& node);
  /// Sorts the names and finds the first name of every linked inode.
  /// @param sequence_count  Sequence numbers of linked nodes are below it.
  Status finish(uint32_t sequence_count);

  uint32_t name_count() const { return static_cast<uint32_t>(names_.record_count()); }
  uint64_t linked_count() const { return linked_nodes_.record_count(); }
  /// Rank of the first name of linked inode `sequence`; kNoIndex when no name survived.
  uint32_t first_rank(uint32_t sequence) const { return first_ranks_[sequence]; }

  /// Goes through all names.
  class NameCursor {
   public:
    bool valid() const { return cursor_.valid(); }
    const TreeName& name() const { return name_; }
    Status next();

   private:
    friend class ResolvedTree;
    explicit NameCursor(SortedCursor cursor) : cursor_(std::move(cursor)) {}
    void decode();

    SortedCursor cursor_;
    TreeName name_;
  };

  /// Goes through all inodes in the order of their first names.
  class InodeCursor {
   public:
    bool valid() const { return names_.valid(); }
    const TreeName& name() const { return names_.name(); }
    const Node& node() const { return node_; }
    /// Names that the inode has. 1 for directories: their count is that of their children.
    uint32_t name_count() const { return name_count_; }
    Status next();

   private:
    friend class ResolvedTree;
    InodeCursor(const ResolvedTree& tree, NameCursor names, SortedCursor linked)
        : tree_(&tree), names_(std::move(names)), linked_(std::move(linked)) {}
    Status settle();

    const ResolvedTree* tree_;
    NameCursor names_;
    SortedCursor linked_;
    Node node_;
    uint32_t name_count_ = 1;
  };

  Result<NameCursor> names() const;
  Result<InodeCursor> inodes() const;

 private:
  ExternalSorter names_;
  ExternalSorter linked_by_sequence_;
  ExternalSorter linked_nodes_;  ///< By the rank of their first names.
  bool has_links_ = false;
  std::vector<uint32_t> first_ranks_;  ///< By sequence; empty without links.
};

}  // namespace varve::chunkstore
