#include "chunkstore/build/node.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/check.h"
#include "chunkstore/erofs/format.h"

namespace varve::chunkstore {
namespace {

constexpr std::string_view kOverlayPrefix = "trusted.overlay.";
constexpr std::string_view kOverlayEscape = "trusted.overlay.overlay.";
constexpr size_t kXattrEntriesBytesMax = erofs::kXattrBodyBytesMax - sizeof(erofs::XattrHeader);
constexpr size_t kXattrNameBytesMax = 255;       // XATTR_NAME_MAX of linux/limits.h
constexpr size_t kXattrListBytesMax = 65536;     // XATTR_LIST_MAX
constexpr size_t kSymlinkTargetBytesMax = 4095;  // PATH_MAX without its NUL
constexpr uint32_t kRdevMajorMax = (1U << 12) - 1;
constexpr uint32_t kRdevMinorMax = (1U << 20) - 1;

// Value of system.posix_acl_*: u32 version, then entries of u16 tag, u16 permissions, u32 id.
// Source: Linux include/uapi/linux/posix_acl_xattr.h and posix_acl.h.
constexpr uint8_t kAclAccessIndex = 2;  // erofs::XattrEntry::name_index
constexpr uint8_t kAclDefaultIndex = 3;
constexpr uint32_t kAclVersion = 2;
constexpr size_t kAclEntryBytes = 8;
constexpr uint16_t kAclTagUser = 0x02;
constexpr uint16_t kAclTagGroup = 0x08;

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::kInvalidArgument, std::move(what));
}

template <class T>
void put(Bytes& to, T value) {
  append_le(to, value);
}
void put_bytes(Bytes& to, ByteView bytes) {
  append_le(to, static_cast<uint32_t>(bytes.size()));
  append(to, bytes);
}

/// Reads what put() and put_bytes() wrote.
class Decoder {
 public:
  explicit Decoder(ByteView from) : from_(from) {}
  template <class T>
  T get() {
    VARVE_CHECK_OP(from_.size(), >=, sizeof(T));
    const T value = load_le<T>(from_.data());
    from_ = from_.subspan(sizeof(T));
    return value;
  }
  ByteView get_bytes() {
    const auto size = get<uint32_t>();
    VARVE_CHECK_OP(from_.size(), >=, size);
    const ByteView bytes = from_.first(size);
    from_ = from_.subspan(size);
    return bytes;
  }

 private:
  ByteView from_;
};

uint32_t type_bits(EntryType type) {
  switch (type) {
    case EntryType::kRegular:
      return S_IFREG;
    case EntryType::kDirectory:
      return S_IFDIR;
    case EntryType::kSymlink:
      return S_IFLNK;
    case EntryType::kCharDevice:
    case EntryType::kWhiteout:
      return S_IFCHR;
    case EntryType::kBlockDevice:
      return S_IFBLK;
    case EntryType::kFifo:
      return S_IFIFO;
    case EntryType::kSocket:
      return S_IFSOCK;
    case EntryType::kHardLink:
    case EntryType::kOpaque:
      break;
  }
  return 0;
}

}  // namespace

void Node::encode(Bytes& to) const {
  put(to, static_cast<uint16_t>(mode));
  put(to, uid);
  put(to, gid);
  put(to, mtime_s);
  put(to, mtime_ns);
  put(to, rdev);
  put(to, size);
  put(to, static_cast<uint8_t>(content));
  put(to, content_index);
  put_bytes(to, as_bytes(target));
  put_bytes(to, xattr_entries);
  put_bytes(to, as_bytes(content_key));
  put_bytes(to, {reinterpret_cast<const uint8_t*>(placed_blocks.data()),
                 placed_blocks.size() * sizeof(uint32_t)});
}

Node Node::decode(ByteView from) {
  Decoder decoder(from);
  Node node;
  node.mode = decoder.get<uint16_t>();
  node.uid = decoder.get<uint32_t>();
  node.gid = decoder.get<uint32_t>();
  node.mtime_s = decoder.get<int64_t>();
  node.mtime_ns = decoder.get<uint32_t>();
  node.rdev = decoder.get<uint32_t>();
  node.size = decoder.get<uint64_t>();
  node.content = static_cast<ContentKind>(decoder.get<uint8_t>());
  node.content_index = decoder.get<uint32_t>();
  node.target = as_text(decoder.get_bytes());
  const ByteView xattrs = decoder.get_bytes();
  node.xattr_entries.assign(xattrs.begin(), xattrs.end());
  node.content_key = as_text(decoder.get_bytes());
  const ByteView blocks = decoder.get_bytes();
  node.placed_blocks.resize(blocks.size() / sizeof(uint32_t));
  if (!blocks.empty()) std::memcpy(node.placed_blocks.data(), blocks.data(), blocks.size());
  return node;
}

Status append_xattr(Bytes& entries, std::string_view name, std::string_view value) {
  const std::string shown = "xattr " + quoted(name);
  if (name.empty() || name.find('\0') != std::string_view::npos)
    return invalid(shown + ": empty, or with a NUL in its name");
  if (name.size() > kXattrNameBytesMax)
    return invalid(shown + ": name longer than " + std::to_string(kXattrNameBytesMax) + " bytes");
  if (value.size() > erofs::kXattrValueBytesMax)
    return invalid(shown + ": value longer than " + std::to_string(erofs::kXattrValueBytesMax) +
                   " bytes");
  const auto* prefix = std::find_if(
      std::begin(erofs::kXattrPrefixes), std::end(erofs::kXattrPrefixes),
      [name](const erofs::XattrPrefix& p) {
        // A prefix that ends in '.' needs a rest, the others are whole names.
        return name.starts_with(p.text) && (p.text.back() == '.') == (name.size() > p.text.size());
      });
  if (prefix == std::end(erofs::kXattrPrefixes))
    return invalid(shown + ": EROFS has no place for names of this kind");
  const std::string_view rest = name.substr(prefix->text.size());

  erofs::XattrEntry head;
  head.name_size = static_cast<uint8_t>(rest.size());
  head.name_index = prefix->index;
  head.value_size = static_cast<uint16_t>(value.size());
  const size_t size = align_up(entries.size() + sizeof(head) + rest.size() + value.size(), 4);
  if (size > kXattrEntriesBytesMax)
    return invalid(shown + ": all xattrs together exceed " + std::to_string(kXattrEntriesBytesMax) +
                   " bytes");
  append_le(entries, head);
  append(entries, as_bytes(rest));
  append(entries, as_bytes(value));
  entries.resize(size);
  return {};
}

std::vector<uint32_t> acl_ids(ByteView entries) {
  std::vector<uint32_t> ids;
  size_t next = 0;
  for (size_t at = 0; at < entries.size(); at = next) {
    // append_xattr() made the entries.
    const auto head = load_le<erofs::XattrEntry>(entries.data() + at);
    const size_t value_at = at + sizeof(head) + head.name_size;
    next = align_up(value_at + head.value_size, 4);
    if (head.name_index != kAclAccessIndex && head.name_index != kAclDefaultIndex) continue;
    const ByteView value = entries.subspan(value_at, head.value_size);
    if (value.size() < sizeof(uint32_t) || load_le<uint32_t>(value.data()) != kAclVersion) continue;
    for (size_t i = sizeof(uint32_t); i + kAclEntryBytes <= value.size(); i += kAclEntryBytes) {
      const auto tag = load_le<uint16_t>(value.data() + i);
      if (tag == kAclTagUser || tag == kAclTagGroup)
        ids.push_back(load_le<uint32_t>(value.data() + i + 4));
    }
  }
  return ids;
}

Result<Bytes> encode_xattrs(const std::map<std::string, std::string>& xattrs) {
  Bytes entries;
  if (xattrs.empty()) return entries;
  std::map<std::string_view, std::string_view> final_names;
  std::vector<std::string> escaped;
  escaped.reserve(xattrs.size());  // Views into it stay valid.
  size_t list_size = 0;
  for (const auto& [name, value] : xattrs) {
    std::string_view final_name = name;
    if (name.starts_with(kOverlayPrefix)) {
      escaped.push_back(std::string(kOverlayEscape) + name.substr(kOverlayPrefix.size()));
      final_name = escaped.back();
    }
    final_names.emplace(final_name, value);
    list_size += final_name.size() + 1;
  }
  if (list_size > kXattrListBytesMax)
    return invalid("xattrs: names together exceed " + std::to_string(kXattrListBytesMax) +
                   " bytes");
  for (const auto& [name, value] : final_names) VARVE_TRY(append_xattr(entries, name, value));
  return entries;
}

Status check_path(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return invalid("its name holds a NUL");
  if (path.size() > erofs::kPathBytesMax)
    return invalid("its path is longer than " + std::to_string(erofs::kPathBytesMax) + " bytes");
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..")
      return invalid("its name has an empty, `.` or `..` component");
    if (name.size() > erofs::kNameBytesMax)
      return invalid("a component of its name is longer than " +
                     std::to_string(erofs::kNameBytesMax) + " bytes");
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
    if (path.empty()) return invalid("its name ends in a slash");
  }
  return {};
}

Result<Node> node_of_entry(const Entry& entry) {
  Node node;
  if (entry.type == EntryType::kWhiteout) {
    node.mode = S_IFCHR;
    return node;
  }
  if (entry.mode > 07777) return invalid("mode has other bits than permissions");
  if (entry.mtime_ns >= 1'000'000'000) return invalid("mtime has too many nanoseconds");
  node.mode = type_bits(entry.type) | entry.mode;
  node.uid = entry.uid;
  node.gid = entry.gid;
  node.mtime_s = entry.mtime_s;
  node.mtime_ns = entry.mtime_ns;
  VARVE_ASSIGN(node.xattr_entries, encode_xattrs(entry.xattrs));
  if (entry.type == EntryType::kCharDevice || entry.type == EntryType::kBlockDevice) {
    if (entry.rdev_major > kRdevMajorMax || entry.rdev_minor > kRdevMinorMax)
      return invalid("device number " + std::to_string(entry.rdev_major) + ":" +
                     std::to_string(entry.rdev_minor) + " does not fit 12 and 20 bits");
    node.rdev = erofs::encode_rdev(entry.rdev_major, entry.rdev_minor);
  }
  if (entry.type == EntryType::kSymlink) {
    if (entry.target.empty() || entry.target.size() > kSymlinkTargetBytesMax)
      return invalid("symlink target of " + std::to_string(entry.target.size()) + " bytes");
    if (entry.target.find('\0') != std::string::npos) return invalid("NUL in its symlink target");
    node.target = entry.target;
    node.size = entry.target.size();
  }
  if (entry.type == EntryType::kRegular) {
    if (entry.size > INT64_MAX) return invalid("size of " + std::to_string(entry.size) + " bytes");
    node.size = entry.size;
  }
  return node;
}

}  // namespace varve::chunkstore
