#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "chunkstore/erofs/reader.h"

namespace varve::chunkstore::erofs {
namespace {

tl::unexpected<Error> corrupt_block(const Inode& directory, uint64_t block_index,
                                    const char* what) {
  return fail(ErrorCode::kCorruption, "EROFS directory " + std::to_string(directory.nid) +
                                          ", block " + std::to_string(block_index) + ": " + what);
}

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

}  // namespace

uint32_t Reader::Block::name_offset(uint32_t index) const {
  return load_le<uint16_t>(bytes.data() + index * sizeof(DirentHead) +
                           offsetof(DirentHead, name_offset));
}

std::string_view Reader::Block::name(uint32_t index) const {
  const uint32_t start = name_offset(index);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + start;
  // The last name ends at the block's end or at the zero padding before it.
  if (index + 1 == entry_count) return {text, strnlen(text, bytes.size() - start)};
  return {text, name_offset(index + 1) - start};
}

Dirent Reader::Block::dirent(uint32_t index) const {
  const auto head = load_le<DirentHead>(bytes.data() + index * sizeof(DirentHead));
  return {std::string(name(index)), head.nid, head.file_type};
}

Result<Reader::Block> Reader::read_block(const Inode& directory, uint64_t block_index) const {
  Block block;
  const uint64_t offset = block_index * kBlockBytes;
  block.bytes.resize(std::min<uint64_t>(kBlockBytes, directory.size - offset));
  VARVE_ASSIGN(const size_t filled, read(directory, offset, block.bytes));
  if (filled < sizeof(DirentHead)) return corrupt_block(directory, block_index, "too short");

  // The first name starts where the heads end, which says how many there are.
  const uint32_t heads_size = block.name_offset(0);
  if (heads_size < sizeof(DirentHead) || heads_size % sizeof(DirentHead) != 0 ||
      heads_size >= block.bytes.size())
    return corrupt_block(directory, block_index, "wrong number of entries");
  block.entry_count = heads_size / sizeof(DirentHead);
  for (uint32_t i = 1; i < block.entry_count; ++i) {
    if (block.name_offset(i) <= block.name_offset(i - 1) ||
        block.name_offset(i) >= block.bytes.size())
      return corrupt_block(directory, block_index, "name offset out of range");
  }
  for (uint32_t i = 0; i < block.entry_count; ++i) {
    if (!is_valid_name(block.name(i))) return corrupt_block(directory, block_index, "invalid name");
    if (i > 0 && block.name(i) <= block.name(i - 1))
      return corrupt_block(directory, block_index, "names out of order");
  }
  return block;
}

Status Reader::read_directory(
    const Inode& directory, uint64_t cookie,
    const std::function<bool(const Dirent&, uint64_t next_cookie)>& visit) const {
  if (!S_ISDIR(directory.mode)) return fail(ErrorCode::kInvalidArgument, "not a directory");
  // A cookie is the byte offset of the entry's head, as on a kernel mount.
  const uint64_t first_block = cookie / kBlockBytes;
  const uint64_t block_count = (directory.size + kBlockBytes - 1) / kBlockBytes;
  for (uint64_t b = first_block; b < block_count; ++b) {
    VARVE_ASSIGN(const Block block, read_block(directory, b));
    uint32_t i = 0;
    if (b == first_block) {
      i = static_cast<uint32_t>((cookie % kBlockBytes + sizeof(DirentHead) - 1) /
                                sizeof(DirentHead));
    }
    for (; i < block.entry_count; ++i) {
      const uint64_t next = i + 1 < block.entry_count
                                ? b * kBlockBytes + (i + 1) * sizeof(DirentHead)
                                : (b + 1) * kBlockBytes;
      if (!visit(block.dirent(i), next)) return {};
    }
  }
  return {};
}

Result<std::optional<Dirent>> Reader::lookup(const Inode& directory, std::string_view name) const {
  if (!S_ISDIR(directory.mode)) return fail(ErrorCode::kInvalidArgument, "not a directory");
  const uint64_t block_count = (directory.size + kBlockBytes - 1) / kBlockBytes;
  // The last block whose first name is not after `name`.
  std::optional<Block> candidate;
  uint64_t low = 0;
  uint64_t high = block_count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    VARVE_ASSIGN(Block block, read_block(directory, middle));
    if (block.name(0) <= name) {
      candidate = std::move(block);
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (!candidate) return std::nullopt;
  uint32_t first = 0;
  uint32_t count = candidate->entry_count;
  while (count > 1) {
    const uint32_t half = count / 2;
    if (candidate->name(first + half) <= name) {
      first += half;
      count -= half;
    } else {
      count = half;
    }
  }
  if (candidate->name(first) != name) return std::nullopt;
  return candidate->dirent(first);
}

Result<Inode> Reader::walk(std::string_view path) const {
  VARVE_ASSIGN(Inode current, inode(root_nid_));
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    if (name.empty()) continue;
    if (!S_ISDIR(current.mode))
      return fail(ErrorCode::kNotFound, "what holds " + quoted(name) + " is not a directory");
    VARVE_ASSIGN(const auto entry, lookup(current, name));
    if (!entry) return fail(ErrorCode::kNotFound, "no entry " + quoted(name));
    VARVE_ASSIGN(current, inode(entry->nid));
  }
  return current;
}

}  // namespace varve::chunkstore::erofs
