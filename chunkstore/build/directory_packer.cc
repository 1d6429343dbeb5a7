#include "chunkstore/build/directory_packer.h"

#include "base/check.h"

namespace varve::chunkstore {

DirectoryPacker::DirectoryPacker(uint64_t own_nid, uint64_t parent_nid, BlockTaker take_block)
    : own_nid_(own_nid), parent_nid_(parent_nid), take_block_(std::move(take_block)) {}

Status DirectoryPacker::add(std::string_view name, uint64_t nid, erofs::FileType type) {
  VARVE_TRY(add_dots_before(name));
  if (type == erofs::FileType::kDirectory) ++subdirectory_count_;
  return append(name, nid, type);
}

Status DirectoryPacker::add_dots_before(std::string_view name) {
  if (dot_count_ == 0 && name > ".") {
    VARVE_TRY(append(".", own_nid_, erofs::FileType::kDirectory));
    ++dot_count_;
  }
  if (dot_count_ == 1 && name > "..") {
    VARVE_TRY(append("..", parent_nid_, erofs::FileType::kDirectory));
    ++dot_count_;
  }
  return {};
}

Status DirectoryPacker::append(std::string_view name, uint64_t nid, erofs::FileType type) {
  const size_t size = sizeof(erofs::DirentHead) + name.size();
  if (heads_.size() + names_.size() + size > erofs::kBlockBytes) {
    Bytes block = take_block_bytes();
    block.resize(erofs::kBlockBytes);
    ++full_block_count_;
    VARVE_TRY(take_block_(block));
  }
  erofs::DirentHead head{};
  head.nid = nid;
  head.name_offset = static_cast<uint16_t>(names_.size());  // The heads' size is added at the end.
  head.file_type = static_cast<uint8_t>(type);
  append_le(heads_, head);
  varve::append(names_, as_bytes(name));
  return {};
}

Bytes DirectoryPacker::take_block_bytes() {
  for (size_t at = offsetof(erofs::DirentHead, name_offset); at < heads_.size();
       at += sizeof(erofs::DirentHead)) {
    const auto offset = load_le<uint16_t>(heads_.data() + at);
    store_le(heads_.data() + at, static_cast<uint16_t>(offset + heads_.size()));
  }
  Bytes block;
  block.reserve(erofs::kBlockBytes);
  varve::append(block, heads_);
  varve::append(block, names_);
  heads_.clear();
  names_.clear();
  return block;
}

Result<Bytes> DirectoryPacker::finish() {
  // Greater than every name that is not there yet.
  VARVE_TRY(add_dots_before("..."));
  VARVE_CHECK_OP(dot_count_, ==, 2);
  return take_block_bytes();
}

}  // namespace varve::chunkstore
