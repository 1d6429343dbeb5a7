#include "chunkstore/build/resolved_tree.h"

#include "base/check.h"
#include "chunkstore/build/path_key.h"

namespace varve::chunkstore {
namespace {

// Value of a name: u32 sequence, u8 flags, u8 type, encoded node.
constexpr size_t kNameHeadBytes = 6;
constexpr uint8_t kFlagOpaque = 1;
constexpr uint8_t kFlagLinked = 2;

}  // namespace

ResolvedTree::ResolvedTree(size_t sort_memory_bytes, const std::string& temp_directory)
    : names_(sort_memory_bytes / 2, temp_directory),
      linked_by_sequence_(sort_memory_bytes / 4, temp_directory),
      linked_nodes_(sort_memory_bytes / 4, temp_directory) {}

Status ResolvedTree::add_name(std::string_view path_key, erofs::FileType type, bool is_opaque,
                              uint32_t sequence, const Node* node) {
  if (names_.record_count() >= kNoIndex)
    return fail(ErrorCode::kUnsupported, "more than 2^32-1 names");
  Bytes value;
  append_le(value, sequence);
  value.push_back(
      static_cast<uint8_t>((is_opaque ? kFlagOpaque : 0) | (node == nullptr ? kFlagLinked : 0)));
  value.push_back(static_cast<uint8_t>(type));
  if (node != nullptr) node->encode(value);
  has_links_ = has_links_ || node == nullptr;
  uint32_t depth = 0;
  if (!path_key.empty()) {
    depth = 1;
    for (const char c : path_key) depth += c == '\0' ? 1 : 0;
  }
  return names_.add(as_bytes(level_key(depth, path_key)), value);
}

Status ResolvedTree::add_linked_node(uint32_t sequence, const Node& node) {
  std::string key;
  append_be(key, sequence);
  Bytes value;
  node.encode(value);
  return linked_by_sequence_.add(as_bytes(key), value);
}

Status ResolvedTree::finish(uint32_t sequence_count) {
  VARVE_TRY(names_.finish());
  VARVE_TRY(linked_by_sequence_.finish());
  if (has_links_) {
    first_ranks_.assign(sequence_count, kNoIndex);
    std::vector<uint32_t> counts(sequence_count, 0);
    VARVE_ASSIGN(NameCursor cursor, names());
    for (; cursor.valid();) {
      const TreeName& name = cursor.name();
      if (name.is_linked) {
        if (first_ranks_[name.sequence] == kNoIndex) first_ranks_[name.sequence] = name.rank;
        ++counts[name.sequence];
      }
      VARVE_TRY(cursor.next());
    }
    VARVE_ASSIGN(SortedCursor nodes, linked_by_sequence_.open());
    while (nodes.valid()) {
      const auto sequence = load_be<uint32_t>(as_text(nodes.key()));
      if (first_ranks_[sequence] != kNoIndex) {
        std::string key;
        append_be(key, first_ranks_[sequence]);
        Bytes value;
        append_le(value, counts[sequence]);
        append(value, nodes.value());
        VARVE_TRY(linked_nodes_.add(as_bytes(key), value));
      }
      VARVE_TRY(nodes.next());
    }
  }
  VARVE_TRY(linked_nodes_.finish());
  linked_by_sequence_ = ExternalSorter(0, "");
  return {};
}

void ResolvedTree::NameCursor::decode() {
  if (!cursor_.valid()) return;
  const std::string_view key = as_text(cursor_.key());
  const ByteView value = cursor_.value();
  name_.depth = load_be<uint32_t>(key);
  name_.path_key = key.substr(4);
  name_.sequence = load_le<uint32_t>(value.data());
  name_.is_opaque = (value[4] & kFlagOpaque) != 0;
  name_.is_linked = (value[4] & kFlagLinked) != 0;
  name_.type = static_cast<erofs::FileType>(value[5]);
  name_.encoded_node = value.subspan(kNameHeadBytes);
}

Status ResolvedTree::NameCursor::next() {
  VARVE_TRY(cursor_.next());
  ++name_.rank;
  decode();
  return {};
}

Result<ResolvedTree::NameCursor> ResolvedTree::names() const {
  VARVE_ASSIGN(SortedCursor sorted, names_.open());
  NameCursor cursor(std::move(sorted));
  cursor.decode();
  return cursor;
}

Result<ResolvedTree::InodeCursor> ResolvedTree::inodes() const {
  VARVE_ASSIGN(NameCursor name_cursor, names());
  VARVE_ASSIGN(SortedCursor linked, linked_nodes_.open());
  InodeCursor cursor(*this, std::move(name_cursor), std::move(linked));
  VARVE_TRY(cursor.settle());
  return cursor;
}

/// Moves on to a name that is its inode's first, and loads the inode.
Status ResolvedTree::InodeCursor::settle() {
  while (names_.valid()) {
    const TreeName& name = names_.name();
    if (!name.is_linked) {
      node_ = Node::decode(name.encoded_node);
      name_count_ = 1;
      return {};
    }
    if (tree_->first_rank(name.sequence) == name.rank) {
      VARVE_CHECK(linked_.valid());
      VARVE_CHECK_OP(load_be<uint32_t>(as_text(linked_.key())), ==, name.rank);
      name_count_ = load_le<uint32_t>(linked_.value().data());
      node_ = Node::decode(linked_.value().subspan(4));
      return linked_.next();
    }
    VARVE_TRY(names_.next());
  }
  return {};
}

Status ResolvedTree::InodeCursor::next() {
  VARVE_TRY(names_.next());
  return settle();
}

}  // namespace varve::chunkstore
