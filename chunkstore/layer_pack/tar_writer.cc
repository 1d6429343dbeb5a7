#include "chunkstore/layer_pack/tar_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "chunkstore/source/posix_acl.h"
#include "chunkstore/source/tar_header.h"

namespace varve::layer_pack {
namespace {

namespace tar = chunkstore::tar;

constexpr uint64_t kRecordBytes = 10240;
constexpr std::string_view kMagic(
    "ustar\0"
    "00",
    8);
/// What fits into the octal fields of 7 and 11 digits.
constexpr uint64_t kShortFieldMax = 07777777;
constexpr uint64_t kLongFieldMax = 077777777777;

std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest_size = key.size() + value.size() + 3;  // ' ', '=', '\n'
  size_t size = rest_size + 1;
  while (std::to_string(size).size() + rest_size != size) ++size;
  std::string record = std::to_string(size);
  record.append(" ").append(key).append("=").append(value).append("\n");
  return record;
}

/// GNU tar's escaping: `%` and `=` would end or disguise the keyword.
std::string escape_keyword(std::string_view name) {
  std::string escaped;
  for (const char letter : name) {
    if (letter == '%') {
      escaped += "%25";
    } else if (letter == '=') {
      escaped += "%3D";
    } else {
      escaped += letter;
    }
  }
  return escaped;
}

std::string decimal_time(int64_t seconds, uint32_t nanoseconds) {
  if (nanoseconds == 0) return std::to_string(seconds);
  // -2 s + 0.75 s is written as -1.25.
  const bool is_negative = seconds < 0;
  const auto whole = static_cast<uint64_t>(is_negative ? -(seconds + 1) : seconds);
  const uint32_t fraction = is_negative ? 1'000'000'000 - nanoseconds : nanoseconds;
  char text[40];
  std::snprintf(text, sizeof(text), "%s%llu.%09u", is_negative ? "-" : "",
                static_cast<unsigned long long>(whole), fraction);
  std::string trimmed = text;
  trimmed.resize(trimmed.find_last_not_of('0') + 1);
  return trimmed;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

std::string acl_keyword(std::string_view xattr) {
  return xattr == chunkstore::kAclAccessXattr ? "SCHILY.acl.access" : "SCHILY.acl.default";
}

std::string xattr_records(const std::map<std::string, std::string>& xattrs) {
  std::string records;
  for (const auto& [name, value] : xattrs) {
    if (name == chunkstore::kAclAccessXattr || name == chunkstore::kAclDefaultXattr) {
      if (const auto text = chunkstore::format_acl_text(value)) {
        records += pax_record(acl_keyword(name), *text);
        continue;
      }
    }
    records += pax_record("SCHILY.xattr." + escape_keyword(name), value);
  }
  return records;
}

/// The records for what the ustar header cannot hold.
std::string pax_records(const TarEntry& entry) {
  std::string records;
  const bool has_long_path = entry.path.size() > tar::kName.size;
  const bool has_long_link = entry.link_path.size() > tar::kLinkName.size;
  // Without this, readers may take the names for UTF-8 and convert them.
  if ((has_long_path && !is_ascii(entry.path)) || (has_long_link && !is_ascii(entry.link_path))) {
    records += pax_record("hdrcharset", "BINARY");
  }
  if (has_long_path) records += pax_record("path", entry.path);
  if (has_long_link) records += pax_record("linkpath", entry.link_path);
  if (entry.size > kLongFieldMax) records += pax_record("size", std::to_string(entry.size));
  if (entry.uid > kShortFieldMax) records += pax_record("uid", std::to_string(entry.uid));
  if (entry.gid > kShortFieldMax) records += pax_record("gid", std::to_string(entry.gid));
  if (entry.mtime_ns != 0 || entry.mtime_s < 0 ||
      static_cast<uint64_t>(entry.mtime_s) > kLongFieldMax) {
    records += pax_record("mtime", decimal_time(entry.mtime_s, entry.mtime_ns));
  }
  return records + xattr_records(entry.xattrs);
}

void put_text(tar::Block& block, tar::Field field, std::string_view text) {
  std::memcpy(block.data() + field.offset, text.data(), std::min(text.size(), field.size));
}

/// Octal, zero-filled, with a NUL at the end; what does not fit stands in a pax record.
void put_number(tar::Block& block, tar::Field field, uint64_t value, uint64_t value_max) {
  char text[16];
  std::snprintf(text, sizeof(text), "%0*llo", static_cast<int>(field.size - 1),
                static_cast<unsigned long long>(value <= value_max ? value : 0));
  put_text(block, field, text);
}

tar::Block make_header(const TarEntry& entry) {
  tar::Block block{};
  put_text(block, tar::kName, entry.path);
  put_number(block, tar::kMode, entry.mode, kShortFieldMax);
  put_number(block, tar::kUid, entry.uid, kShortFieldMax);
  put_number(block, tar::kGid, entry.gid, kShortFieldMax);
  put_number(block, tar::kSize, entry.size, kLongFieldMax);
  put_number(block, tar::kMtime, entry.mtime_s < 0 ? 0 : static_cast<uint64_t>(entry.mtime_s),
             kLongFieldMax);
  block[tar::kTypeOffset] = static_cast<uint8_t>(entry.type);
  put_text(block, tar::kLinkName, entry.link_path);
  put_text(block, tar::kMagic, kMagic);
  put_number(block, tar::kDevMajor, entry.dev_major, kShortFieldMax);
  put_number(block, tar::kDevMinor, entry.dev_minor, kShortFieldMax);
  std::memset(block.data() + tar::kChecksum.offset, ' ', tar::kChecksum.size);
  uint32_t sum = 0;
  for (const uint8_t byte : block) sum += byte;
  char text[8];
  std::snprintf(text, sizeof(text), "%06o", sum);
  put_text(block, {tar::kChecksum.offset, 7}, std::string_view(text, 7));
  return block;
}

}  // namespace

Status TarWriter::write(ByteView bytes) {
  written_ += bytes.size();
  return sink_(bytes);
}

Status TarWriter::write_padding() {
  static constexpr std::array<uint8_t, tar::kBlockBytes> kZeros{};
  const size_t over = written_ % tar::kBlockBytes;
  return over == 0 ? Status{} : write(ByteView(kZeros).first(tar::kBlockBytes - over));
}

Status TarWriter::add(const TarEntry& entry) {
  VARVE_CHECK_OP(content_left_, ==, uint64_t{0});
  VARVE_CHECK(entry.type == '0' || entry.size == 0);
  const std::string records = pax_records(entry);
  if (!records.empty()) {
    TarEntry extension;
    extension.path = "PaxHeaders/0";
    extension.type = 'x';
    extension.mode = 0644;
    extension.size = records.size();
    VARVE_TRY(write(make_header(extension)));
    VARVE_TRY(write(as_bytes(records)));
    VARVE_TRY(write_padding());
  }
  VARVE_TRY(write(make_header(entry)));
  content_left_ = entry.size;
  return {};
}

Status TarWriter::write_content(ByteView bytes) {
  VARVE_CHECK_OP(bytes.size(), <=, content_left_);
  content_left_ -= bytes.size();
  VARVE_TRY(write(bytes));
  return content_left_ == 0 ? write_padding() : Status{};
}

Status TarWriter::finish() {
  VARVE_CHECK_OP(content_left_, ==, uint64_t{0});
  const uint64_t end = written_ + 2 * tar::kBlockBytes;
  const Bytes zeros((kRecordBytes - end % kRecordBytes) % kRecordBytes + 2 * tar::kBlockBytes);
  return write(zeros);
}

}  // namespace varve::layer_pack
