#include <algorithm>

#include "chunkstore/erofs/reader.h"

namespace varve::chunkstore::erofs {
namespace {

tl::unexpected<Error> corrupt_xattrs(const Inode& inode, const char* what) {
  return fail(ErrorCode::kCorruption, "xattrs of EROFS inode " + std::to_string(inode.nid) +
                                          " at offset " + std::to_string(inode.body_offset) + ": " +
                                          what);
}

const XattrPrefix* find_prefix(uint8_t index) {
  const auto* found = std::find_if(std::begin(kXattrPrefixes), std::end(kXattrPrefixes),
                                   [index](const XattrPrefix& p) { return p.index == index; });
  return found == std::end(kXattrPrefixes) ? nullptr : found;
}

}  // namespace

Result<std::string> Reader::xattr_name(const Inode& inode, uint8_t name_index,
                                       std::string_view suffix) const {
  std::string infix;
  uint8_t base_index = name_index;
  if ((name_index & kXattrLongPrefix) != 0) {
    const size_t long_index = name_index & ~kXattrLongPrefix & 0xFF;
    if (long_index >= long_prefixes_.size()) return corrupt_xattrs(inode, "unknown long prefix");
    base_index = long_prefixes_[long_index].base_index;
    infix = long_prefixes_[long_index].infix;
  }
  const XattrPrefix* prefix = find_prefix(base_index);
  if (prefix == nullptr) return corrupt_xattrs(inode, "unknown prefix");
  std::string name(prefix->text);
  name += infix;
  name += suffix;
  if (name.find('\0') != std::string::npos || name.back() == '.')
    return corrupt_xattrs(inode, "invalid name");
  return name;
}

Status Reader::add_shared_xattr(const Inode& inode, uint32_t id,
                                std::map<std::string, std::string>& xattrs) const {
  const uint64_t offset = xattr_offset_ + uint64_t{id} * 4;
  VARVE_TRY(check_range(offset, sizeof(XattrEntry), inode.nid, "shared xattr"));
  uint8_t raw[sizeof(XattrEntry)];
  VARVE_TRY(source_->read(offset, raw));
  const auto entry = load_le<XattrEntry>(raw);
  const size_t size = size_t{entry.name_size} + entry.value_size;
  VARVE_TRY(check_range(offset + sizeof(entry), size, inode.nid, "shared xattr"));
  std::string text(size, '\0');
  VARVE_TRY(source_->read(offset + sizeof(entry),
                          {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  VARVE_ASSIGN(std::string name, xattr_name(inode, entry.name_index,
                                            std::string_view(text).substr(0, entry.name_size)));
  xattrs.emplace(std::move(name), text.substr(entry.name_size));
  return {};
}

Result<std::map<std::string, std::string>> Reader::xattrs(const Inode& inode) const {
  std::map<std::string, std::string> xattrs;
  if (inode.xattr_size == 0) return xattrs;
  Bytes body(inode.xattr_size);
  VARVE_TRY(source_->read(inode.body_offset, body));
  const auto header = load_le<XattrHeader>(body.data());
  const size_t entries_start = sizeof(header) + 4 * size_t{header.shared_count};
  if (entries_start > body.size()) return corrupt_xattrs(inode, "too many shared ones");

  size_t position = entries_start;
  while (position < body.size()) {
    if (body.size() - position < sizeof(XattrEntry)) return corrupt_xattrs(inode, "entry cut off");
    const auto entry = load_le<XattrEntry>(body.data() + position);
    const size_t size = size_t{entry.name_size} + entry.value_size;
    position += sizeof(XattrEntry);
    if (size > body.size() - position) return corrupt_xattrs(inode, "entry cut off");
    const std::string_view text = as_text(ByteView(body).subspan(position, size));
    VARVE_ASSIGN(std::string name,
                 xattr_name(inode, entry.name_index, text.substr(0, entry.name_size)));
    xattrs.emplace(std::move(name), text.substr(entry.name_size));
    position = align_up(position + size, 4);
  }
  for (size_t i = 0; i < header.shared_count; ++i) {
    const auto id = load_le<uint32_t>(body.data() + sizeof(header) + 4 * i);
    VARVE_TRY(add_shared_xattr(inode, id, xattrs));
  }
  return xattrs;
}

}  // namespace varve::chunkstore::erofs
