#include "chunkstore/build/tree_resolver.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/check.h"
#include "chunkstore/build/path_key.h"

namespace varve::chunkstore {
namespace {

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::kInvalidArgument, std::move(what));
}
std::string shown(std::string_view key) {
  return key.empty() ? "'/'" : quoted(key_to_path(key));
}

}  // namespace

TreeResolver::TreeResolver(size_t sort_memory_bytes, const std::string& temp_directory,
                           BaseDirectory base_directory)
    : temp_directory_(temp_directory),
      base_directory_(std::move(base_directory)),
      entries_(sort_memory_bytes - sort_memory_bytes / 4, temp_directory),
      links_(sort_memory_bytes / 4, temp_directory) {}

Result<uint32_t> TreeResolver::add(std::string_view path, RecordKind kind, ByteView value) {
  if (sequence_count_ == kNoIndex) return fail(ErrorCode::kUnsupported, "more than 2^32-1 entries");
  const uint32_t sequence = sequence_count_++;
  Bytes record;
  record.reserve(1 + value.size());
  record.push_back(static_cast<uint8_t>(kind));
  append(record, value);
  VARVE_TRY(entries_.add(as_bytes(arrival_key(path, sequence)), record));
  return sequence;
}

Result<uint32_t> TreeResolver::add_node(std::string_view path, const Node& node) {
  if (path.empty() && !S_ISDIR(node.mode)) return invalid("the root is not a directory");
  Bytes value;
  node.encode(value);
  return add(path, RecordKind::kNode, value);
}

Result<uint32_t> TreeResolver::add_hard_link(std::string_view path, std::string_view target) {
  if (path == target) return invalid("hard link to itself");
  if (path.empty()) return invalid("the root is a hard link");
  VARVE_ASSIGN(const uint32_t sequence, add(path, RecordKind::kHardLink, as_bytes(target)));
  VARVE_TRY(links_.add(as_bytes(arrival_key(target, sequence)), as_bytes(path)));
  return sequence;
}

Result<uint32_t> TreeResolver::add_whiteout(std::string_view path) {
  if (path.empty()) return invalid("whiteout of the root");
  return add(path, RecordKind::kWhiteout, {});
}

Result<uint32_t> TreeResolver::add_opaque(std::string_view path) {
  return add(path, RecordKind::kOpaque, {});
}

// --- Hard links: which entry's inode does each one name? ---

Status TreeResolver::answer_link(SortedCursor& links,
                                 const std::vector<std::pair<uint32_t, uint8_t>>& versions) {
  // `versions`: sequence and file type (kUnknown: itself a link) of the target path, by sequence.
  const std::string_view key = as_text(links.key());
  const uint32_t sequence = arrival_sequence(key);
  const auto after =
      std::lower_bound(versions.begin(), versions.end(), std::pair<uint32_t, uint8_t>(sequence, 0));
  const std::string names =
      "hard link " + quoted(as_text(links.value())) + " to " + shown(arrival_path_key(key));
  if (versions.empty()) return invalid(names + ": there is no such entry");
  const auto& version = after == versions.begin() ? *after : *(after - 1);
  if (version.second == static_cast<uint8_t>(erofs::FileType::kDirectory))
    return invalid(names + ": it is a directory");
  link_roots_[sequence] = version.first;
  return links.next();
}

Status TreeResolver::resolve_links() {
  link_roots_.assign(sequence_count_, kNoIndex);
  types_.assign(sequence_count_, 0);
  is_linked_.assign(sequence_count_, false);
  VARVE_ASSIGN(SortedCursor links, links_.open());
  VARVE_ASSIGN(SortedCursor entries, entries_.open());
  std::string path_key;
  std::vector<std::pair<uint32_t, uint8_t>> versions;
  while (entries.valid() || links.valid()) {
    // One round a path: the next in order that occurs as an entry or as a target.
    const bool from_entry =
        entries.valid() && (!links.valid() || arrival_path_key(as_text(entries.key())) <=
                                                  arrival_path_key(as_text(links.key())));
    path_key = arrival_path_key(as_text(from_entry ? entries.key() : links.key()));
    versions.clear();
    while (entries.valid() && arrival_path_key(as_text(entries.key())) == path_key) {
      const uint32_t sequence = arrival_sequence(as_text(entries.key()));
      const ByteView value = entries.value();
      const auto kind = static_cast<RecordKind>(value[0]);
      if (kind == RecordKind::kNode) {
        const uint32_t mode = load_le<uint16_t>(value.data() + 1);
        types_[sequence] = static_cast<uint8_t>(erofs::file_type_of_mode(mode));
      }
      if (kind == RecordKind::kNode || kind == RecordKind::kHardLink)
        versions.emplace_back(sequence, types_[sequence]);
      VARVE_TRY(entries.next());
    }
    while (links.valid() && arrival_path_key(as_text(links.key())) == path_key)
      VARVE_TRY(answer_link(links, versions));
  }
  return follow_chains();
}

Status TreeResolver::follow_chains() {
  std::vector<uint32_t> chain;
  std::vector<bool> is_in_chain(sequence_count_, false);
  for (uint32_t start = 0; start < sequence_count_; ++start) {
    if (link_roots_[start] == kNoIndex) continue;
    chain.clear();
    uint32_t at = start;
    while (link_roots_[at] != kNoIndex && !is_in_chain[at]) {
      is_in_chain[at] = true;
      chain.push_back(at);
      at = link_roots_[at];
    }
    if (is_in_chain[at]) {
      VARVE_ASSIGN(const std::string path, path_of(at));
      return invalid("hard link " + path + ": leads back to itself");
    }
    for (const uint32_t link : chain) {
      link_roots_[link] = at;
      is_in_chain[link] = false;
    }
    is_linked_[at] = true;
  }
  return {};
}

Result<std::string> TreeResolver::path_of(uint32_t sequence) const {
  VARVE_ASSIGN(SortedCursor entries, entries_.open());
  while (arrival_sequence(as_text(entries.key())) != sequence) VARVE_TRY(entries.next());
  return shown(arrival_path_key(as_text(entries.key())));
}

// --- The tree: one pass in preorder ---

Status TreeResolver::resolve(ResolvedTree& tree) {
  tree_ = &tree;
  VARVE_TRY(entries_.finish());
  VARVE_TRY(links_.finish());
  if (links_.record_count() > 0) VARVE_TRY(resolve_links());
  links_ = ExternalSorter(0, temp_directory_);

  VARVE_ASSIGN(SortedCursor entries, entries_.open());
  while (entries.valid()) {
    const std::string key(arrival_path_key(as_text(entries.key())));
    Group group;
    VARVE_TRY(read_group(entries, key, group));
    VARVE_TRY(take_group(key, group));
  }
  if (pending_whiteout_) VARVE_TRY(emit_whiteout(*pending_whiteout_));
  if (open_.empty()) VARVE_TRY(emit_implied("", Implied::kByChild));
  entries_ = ExternalSorter(0, temp_directory_);
  std::vector<uint32_t>().swap(link_roots_);
  std::vector<uint8_t>().swap(types_);
  return tree.finish(sequence_count_);
}

Status TreeResolver::read_group(SortedCursor& entries, std::string_view key, Group& group) {
  while (entries.valid() && arrival_path_key(as_text(entries.key())) == key) {
    const ByteView value = entries.value();
    const auto kind = static_cast<RecordKind>(value[0]);
    if (kind == RecordKind::kWhiteout) {
      group.has_whiteout = true;
    } else if (kind == RecordKind::kOpaque) {
      group.has_opaque = true;
    } else {
      const uint32_t sequence = arrival_sequence(as_text(entries.key()));
      group.real = Record{kind, sequence, Bytes(value.begin() + 1, value.end())};
      // An inode that links name is kept even if its own path holds something else in the end.
      if (kind == RecordKind::kNode && is_linked(sequence))
        VARVE_TRY(tree_->add_linked_node(sequence, Node::decode(group.real->value)));
    }
    VARVE_TRY(entries.next());
  }
  return {};
}

Status TreeResolver::take_group(std::string_view key, const Group& group) {
  VARVE_TRY(settle_pending_whiteout(key));
  VARVE_TRY(open_parents(key));
  if (group.real) {
    const bool is_directory = group.real->kind == RecordKind::kNode &&
                              S_ISDIR(load_le<uint16_t>(group.real->value.data()));
    if (group.has_opaque && !is_directory)
      return invalid("opaque mark for " + shown(key) + ", which is not a directory");
    const bool is_opaque = is_directory && (group.has_opaque || group.has_whiteout);
    const bool is_hidden = !open_.empty() && open_.back().hides_base;
    push_open(key, is_directory, is_opaque || is_hidden);
    return emit_record(key, *group.real, is_opaque);
  }
  if (group.has_opaque) return emit_implied(key, Implied::kByOpaque);
  // Whether the whiteout hides a path or marks an implied directory shows with the next path.
  pending_whiteout_ = std::string(key);
  return {};
}

Status TreeResolver::settle_pending_whiteout(std::string_view next_key) {
  if (!pending_whiteout_) return {};
  const std::string key = std::move(*pending_whiteout_);
  pending_whiteout_.reset();
  return is_below(next_key, key) ? emit_implied(key, Implied::kByWhiteout) : emit_whiteout(key);
}

void TreeResolver::push_open(std::string_view key, bool is_directory, bool hides_base) {
  open_key_ = key;
  open_.push_back({key.size(), is_directory, hides_base});
}

/// Makes `open_` the chain of directories above `key`, adding those that no entry describes.
Status TreeResolver::open_parents(std::string_view key) {
  while (!open_.empty() && !is_below(key, last_open_key())) open_.pop_back();
  if (key.empty()) return {};
  if (open_.empty()) VARVE_TRY(emit_implied("", Implied::kByChild));
  if (!open_.back().is_directory)
    return invalid(shown(key) + " lies below " + shown(last_open_key()) +
                   ", which is not a directory");
  for (;;) {
    const size_t parent_size = open_.back().key_size;
    const size_t start = parent_size == 0 ? 0 : parent_size + 1;
    const size_t end = key.find('\0', start);
    if (end == std::string_view::npos) return {};
    VARVE_TRY(emit_implied(key.substr(0, end), Implied::kByChild));
  }
}

Status TreeResolver::emit_implied(std::string_view key, Implied why) {
  DirectoryAttributes attributes;
  const bool is_hidden = !open_.empty() && open_.back().hides_base;
  const bool is_opaque = why != Implied::kByChild;
  if (base_directory_ && !is_hidden && why != Implied::kByWhiteout) {
    VARVE_ASSIGN(auto found, base_directory_(key_to_path(key)));
    if (found) attributes = std::move(*found);
  }
  Entry entry;
  entry.type = EntryType::kDirectory;
  entry.mode = attributes.mode;
  entry.uid = attributes.uid;
  entry.gid = attributes.gid;
  entry.mtime_s = attributes.mtime_s;
  entry.mtime_ns = attributes.mtime_ns;
  entry.xattrs = std::move(attributes.xattrs);
  auto node = node_of_entry(entry);
  if (!node) return fail(std::move(node).error(), "directory " + shown(key) + " of the base");
  push_open(key, true, is_hidden || is_opaque);
  return tree_->add_name(key, erofs::FileType::kDirectory, is_opaque, kNoIndex, &*node);
}

Status TreeResolver::emit_whiteout(std::string_view key) {
  Node node;
  node.mode = S_IFCHR;
  return tree_->add_name(key, erofs::FileType::kCharDevice, false, kNoIndex, &node);
}

Status TreeResolver::emit_record(std::string_view key, const Record& record, bool is_opaque) {
  if (record.kind == RecordKind::kHardLink) {
    const uint32_t root = link_roots_[record.sequence];
    return tree_->add_name(key, static_cast<erofs::FileType>(types_[root]), false, root, nullptr);
  }
  if (is_linked(record.sequence)) {
    return tree_->add_name(key, static_cast<erofs::FileType>(types_[record.sequence]), false,
                           record.sequence, nullptr);
  }
  const Node node = Node::decode(record.value);
  return tree_->add_name(key, erofs::file_type_of_mode(node.mode), is_opaque, record.sequence,
                         &node);
}

}  // namespace varve::chunkstore
