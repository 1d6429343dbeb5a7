#include "chunkstore/source/posix_acl.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

#include "base/bytes.h"

namespace varve::chunkstore {
namespace {

// include/uapi/linux/posix_acl_xattr.h: u32 version, then {u16 tag, u16 permissions, u32 id}.
constexpr uint32_t kAclVersion = 2;
constexpr size_t kAclHeaderBytes = 4;
constexpr size_t kAclEntryBytes = 8;
constexpr uint32_t kNoId = 0xffffffff;

enum Tag : uint16_t {
  kUserObject = 0x01,
  kUser = 0x02,
  kGroupObject = 0x04,
  kGroup = 0x08,
  kMask = 0x10,
  kOther = 0x20,
};

struct AclEntry {
  uint16_t tag = 0;
  uint16_t permissions = 0;
  uint32_t id = kNoId;
};

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string_view trim(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t\r") - start + 1);
}

std::optional<uint32_t> parse_id(std::string_view text) {
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id == kNoId) return {};
  return id;
}

std::optional<uint16_t> parse_permissions(std::string_view text) {
  uint16_t bits = 0;
  for (const char letter : text) {
    switch (letter) {
      case 'r':
        bits |= 4;
        break;
      case 'w':
        bits |= 2;
        break;
      case 'x':
        bits |= 1;
        break;
      case '-':
        break;
      default:
        return {};
    }
  }
  return bits;
}

Result<AclEntry> parse_entry(std::string_view text) {
  const auto wrong = [&](const char* why) {
    return fail(ErrorCode::kInvalidArgument, "ACL entry " + quoted(text) + " " + why);
  };
  const auto fields = split(text, ":");
  // Solaris and some versions of star leave the empty qualifier of mask and other out.
  const bool is_short = fields.size() == 2;
  if (fields.size() < 2 || fields.size() > 4) return wrong("has the wrong number of fields");
  const std::string_view kind = trim(fields[0]);
  const std::string_view qualifier = is_short ? std::string_view() : trim(fields[1]);
  AclEntry entry;
  const auto permissions = parse_permissions(trim(fields[is_short ? 1 : 2]));
  if (!permissions) return wrong("has unknown permissions");
  entry.permissions = *permissions;
  if (kind == "user" || kind == "u") {
    entry.tag = qualifier.empty() ? kUserObject : kUser;
  } else if (kind == "group" || kind == "g") {
    entry.tag = qualifier.empty() ? kGroupObject : kGroup;
  } else if (kind == "mask" || kind == "m") {
    entry.tag = kMask;
  } else if (kind == "other" || kind == "o") {
    entry.tag = kOther;
  } else {
    return wrong("is of an unknown kind");
  }
  if (entry.tag == kUser || entry.tag == kGroup) {
    const auto id = parse_id(fields.size() == 4 ? trim(fields[3]) : qualifier);
    if (!id)
      return wrong(
          "has no numeric id, and names are not looked up here (tar --xattrs keeps the ids)");
    entry.id = *id;
  }
  return entry;
}

/// What the kernel's posix_acl_valid() asks for, on sorted entries.
Status check_entries(const std::vector<AclEntry>& entries) {
  const auto count = [&](uint16_t tag) {
    return std::count_if(entries.begin(), entries.end(),
                         [&](const AclEntry& entry) { return entry.tag == tag; });
  };
  if (count(kUserObject) != 1 || count(kGroupObject) != 1 || count(kOther) != 1) {
    return fail(ErrorCode::kInvalidArgument, "ACL needs one entry each for owner, group and other");
  }
  const bool has_named = count(kUser) + count(kGroup) > 0;
  if (count(kMask) > 1 || (has_named && count(kMask) == 0)) {
    return fail(ErrorCode::kInvalidArgument, "ACL with named entries needs exactly one mask");
  }
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].tag == entries[i - 1].tag && entries[i].id == entries[i - 1].id) {
      return fail(ErrorCode::kInvalidArgument,
                  "ACL names id " + std::to_string(entries[i].id) + " twice");
    }
  }
  return {};
}

uint16_t permissions_of(const std::vector<AclEntry>& entries, uint16_t tag, uint16_t otherwise) {
  for (const AclEntry& entry : entries) {
    if (entry.tag == tag) return entry.permissions;
  }
  return otherwise;
}

std::string_view kind_name(uint16_t tag) {
  switch (tag) {
    case kUserObject:
    case kUser:
      return "user";
    case kGroupObject:
    case kGroup:
      return "group";
    case kMask:
      return "mask";
    case kOther:
      return "other";
    default:
      return {};
  }
}

}  // namespace

Result<ParsedAcl> parse_acl_text(std::string_view text) {
  std::vector<AclEntry> entries;
  for (const std::string_view line : split(text, "\n,")) {
    const std::string_view part = trim(line.substr(0, line.find('#')));
    if (part.empty()) continue;
    VARVE_ASSIGN(const AclEntry entry, parse_entry(part));
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const AclEntry& a, const AclEntry& b) {
    return std::tie(a.tag, a.id) < std::tie(b.tag, b.id);
  });
  VARVE_TRY(check_entries(entries));

  ParsedAcl acl;
  Bytes bytes;
  append_le<uint32_t>(bytes, kAclVersion);
  for (const AclEntry& entry : entries) {
    append_le<uint16_t>(bytes, entry.tag);
    append_le<uint16_t>(bytes, entry.permissions);
    append_le<uint32_t>(bytes, entry.id);
  }
  acl.xattr = as_text(bytes);
  acl.is_minimal = entries.size() == 3;
  const uint16_t group = permissions_of(entries, kGroupObject, 0);
  acl.mode_bits = static_cast<uint16_t>(permissions_of(entries, kUserObject, 0) << 6 |
                                        permissions_of(entries, kMask, group) << 3 |
                                        permissions_of(entries, kOther, 0));
  return acl;
}

std::optional<std::string> format_acl_text(std::string_view xattr) {
  const ByteView bytes = as_bytes(xattr);
  if (bytes.size() < kAclHeaderBytes || (bytes.size() - kAclHeaderBytes) % kAclEntryBytes != 0 ||
      load_le<uint32_t>(bytes.data()) != kAclVersion) {
    return {};
  }
  std::string text;
  for (size_t at = kAclHeaderBytes; at < bytes.size(); at += kAclEntryBytes) {
    const auto tag = load_le<uint16_t>(&bytes[at]);
    const auto permissions = load_le<uint16_t>(&bytes[at + 2]);
    const std::string_view kind = kind_name(tag);
    if (kind.empty() || permissions > 7) return {};
    text += kind;
    text += ':';
    if (tag == kUser || tag == kGroup) text += std::to_string(load_le<uint32_t>(&bytes[at + 4]));
    text += ':';
    text += (permissions & 4) ? 'r' : '-';
    text += (permissions & 2) ? 'w' : '-';
    text += (permissions & 1) ? 'x' : '-';
    text += '\n';
  }
  // Text keeps neither the order of entries nor an id where none belongs: what would not come back
  // byte for byte is no text.
  const auto parsed = parse_acl_text(text);
  if (!parsed || parsed->xattr != xattr) return {};
  return text;
}

}  // namespace varve::chunkstore
