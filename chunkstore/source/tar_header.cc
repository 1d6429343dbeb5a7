#include "chunkstore/source/tar_header.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace varve::chunkstore::tar {
namespace {

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

/// GNU's binary form: the first bit marks it, the rest is a big-endian two's complement number.
Result<int64_t> parse_base256(std::string_view bytes) {
  const bool is_negative = (static_cast<uint8_t>(bytes[0]) & 0x40) != 0;
  uint64_t value = is_negative ? ~0ULL : 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto byte = static_cast<uint8_t>(bytes[i]);
    if (i == 0) byte = is_negative ? byte | 0x80 : byte & 0x7f;
    // What is shifted out, and the sign that stays, must be sign extension only.
    const uint8_t top = static_cast<uint8_t>(value >> 56);
    if (top != (is_negative ? 0xff : 0x00)) return invalid("number does not fit into 64 bits");
    value = value << 8 | byte;
  }
  if ((static_cast<int64_t>(value) < 0) != is_negative) {
    return invalid("number does not fit into 64 bits");
  }
  return static_cast<int64_t>(value);
}

Result<uint64_t> parse_decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid("not a number from 0 to 2^64-1: " + quoted(text));
  }
  return value;
}

int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

std::string url_decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

/// GNU tar writes `=` as %3D and `%` as %25 in the keyword, and nothing else.
std::string gnu_decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view code = text.substr(i, 3);
    if (code == "%3D" || code == "%25") {
      decoded += code == "%3D" ? '=' : '%';
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

Result<std::string> base64_decode(std::string_view text) {
  static constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string decoded;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char letter : text.substr(0, text.find('='))) {
    const size_t value = kAlphabet.find(letter);
    if (value == std::string_view::npos) return invalid("xattr value is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      decoded += static_cast<char>(bits >> bit_count & 0xff);
    }
  }
  return decoded;
}

Status set_text(std::optional<std::string>& to, std::string_view value) {
  to.reset();
  if (!value.empty()) to = std::string(value);
  return {};
}

/// An empty value takes an earlier (global) record back.
Status set_number(std::optional<uint64_t>& to, std::string_view value) {
  to.reset();
  if (value.empty()) return {};
  VARVE_ASSIGN(to, parse_decimal(value));
  return {};
}

Status add_sparse_run(PaxFields& fields, SparseRun run) {
  if (fields.sparse_runs.size() >= kSparseRunCountMax) return invalid("too many sparse runs");
  fields.sparse_runs.push_back(run);
  fields.has_sparse_runs = true;
  return {};
}

/// Format 0.1: "offset,size,offset,size…".
Status parse_sparse_map(PaxFields& fields, std::string_view text) {
  fields.sparse_runs.clear();
  fields.has_sparse_runs = true;
  std::optional<uint64_t> offset;
  for (size_t start = 0; start < text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    VARVE_ASSIGN(const uint64_t value, parse_decimal(text.substr(start, comma - start)));
    start = comma + 1;
    if (!offset) {
      offset = value;
    } else {
      VARVE_TRY(add_sparse_run(fields, {*offset, value}));
      offset.reset();
    }
  }
  if (offset) return invalid("sparse map has an odd number of values");
  return {};
}

Status apply_sparse_record(std::string_view key, std::string_view value, PaxFields& fields) {
  if (key == "major") return set_number(fields.sparse_major, value);
  if (key == "minor") return set_number(fields.sparse_minor, value);
  if (key == "name") return set_text(fields.sparse_name, value);
  if (key == "size" || key == "realsize") return set_number(fields.sparse_real_size, value);
  if (key == "map") return parse_sparse_map(fields, value);
  if (key == "numblocks") {  // Format 0.0: pairs of records follow; the count says nothing new.
    fields.has_sparse_runs = true;
    return {};
  }
  if (key == "offset") {
    VARVE_ASSIGN(const uint64_t offset, parse_decimal(value));
    return add_sparse_run(fields, {offset, 0});
  }
  if (key == "numbytes") {
    if (fields.sparse_runs.empty()) return invalid("sparse size before its offset");
    VARVE_ASSIGN(fields.sparse_runs.back().size, parse_decimal(value));
    return {};
  }
  return fail(ErrorCode::kUnsupported, "sparse record GNU.sparse." + std::string(key));
}

Status apply_xattr(std::map<std::string, std::string>& xattrs, std::string name,
                   std::string_view value) {
  if (name.empty() || name.find('\0') != std::string::npos) {
    return invalid("xattr name " + quoted(name) + " is empty or holds a NUL byte");
  }
  xattrs[std::move(name)] = std::string(value);
  return {};
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

Status apply_pax_record(std::string_view key, std::string_view value, PaxFields& fields) {
  if (key == "path") return set_text(fields.path, value);
  if (key == "linkpath") return set_text(fields.link_path, value);
  if (key == "size") return set_number(fields.size, value);
  if (key == "uid") return set_number(fields.uid, value);
  if (key == "gid") return set_number(fields.gid, value);
  if (key == "SCHILY.devmajor") return set_number(fields.dev_major, value);
  if (key == "SCHILY.devminor") return set_number(fields.dev_minor, value);
  if (key == "SCHILY.acl.access") return set_text(fields.acl_access, value);
  if (key == "SCHILY.acl.default") return set_text(fields.acl_default, value);
  if (key == "mtime") {
    fields.mtime.reset();
    if (value.empty()) return {};
    VARVE_ASSIGN(fields.mtime, parse_time(value));
    return {};
  }
  if (take_prefix(key, "SCHILY.xattr.")) {
    return apply_xattr(fields.schily_xattrs, gnu_decode(key), value);
  }
  if (take_prefix(key, "LIBARCHIVE.xattr.")) {
    VARVE_ASSIGN(const std::string decoded, base64_decode(value));
    return apply_xattr(fields.libarchive_xattrs, url_decode(key), decoded);
  }
  if (take_prefix(key, "GNU.sparse.")) return apply_sparse_record(key, value, fields);
  if (key == "SUN.holesdata" || key == "SCHILY.realsize" || take_prefix(key, "GNU.volume.")) {
    return fail(ErrorCode::kUnsupported, "pax record " + quoted(key));
  }
  return {};
}

}  // namespace

bool is_zero_block(const Block& block) {
  return std::all_of(block.begin(), block.end(), [](uint8_t byte) { return byte == 0; });
}

bool is_checksum_right(const Block& block) {
  const auto stored = number_field(block, kChecksum);
  if (!stored) return false;
  int64_t unsigned_sum = 0;
  int64_t signed_sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool is_own = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.size;
    const uint8_t byte = is_own ? ' ' : block[i];
    unsigned_sum += byte;
    signed_sum += static_cast<int8_t>(byte);
  }
  return *stored == unsigned_sum || *stored == signed_sum;
}

std::string_view text_field(const Block& block, Field field) {
  const std::string_view whole = as_text(ByteView(block).subspan(field.offset, field.size));
  return whole.substr(0, whole.find('\0'));
}

Result<int64_t> number_field(const Block& block, Field field) {
  const std::string_view whole = as_text(ByteView(block).subspan(field.offset, field.size));
  if ((static_cast<uint8_t>(whole[0]) & 0x80) != 0) return parse_base256(whole);
  const size_t start = whole.find_first_not_of(' ');
  if (start == std::string_view::npos) return int64_t{0};
  int64_t value = 0;
  size_t at = start;
  for (; at < whole.size() && whole[at] >= '0' && whole[at] <= '7'; ++at) {
    value = value * 8 + (whole[at] - '0');  // at most 12 digits
  }
  if (at < whole.size() && whole[at] != ' ' && whole[at] != '\0') {
    return invalid("header number " + quoted(whole) + " is not octal");
  }
  return value;
}

std::string header_name(const Block& block) {
  const std::string_view name = text_field(block, kName);
  // GNU's old format ("ustar  ") keeps other things where POSIX has the prefix.
  if (as_text(ByteView(block).subspan(kMagic.offset, 6)) != std::string_view("ustar\0", 6)) {
    return std::string(name);
  }
  const bool is_star =
      as_text(ByteView(block).subspan(kStarMarkOffset, 4)) == std::string_view("tar\0", 4);
  const std::string_view prefix = text_field(block, is_star ? kStarPrefix : kPrefix);
  if (prefix.empty()) return std::string(name);
  return std::string(prefix) + "/" + std::string(name);
}

Result<Timestamp> parse_time(std::string_view text) {
  const auto wrong = [&] { return invalid("not a time: " + quoted(text)); };
  const bool is_negative = !text.empty() && text[0] == '-';
  const std::string_view number = text.substr(is_negative ? 1 : 0);
  const size_t point = std::min(number.find('.'), number.size());
  const auto whole = parse_decimal(number.substr(0, point));
  if (!whole || *whole > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - 1)) {
    return wrong();
  }
  uint32_t nanoseconds = 0;
  uint32_t unit = 100'000'000;
  bool has_rest = false;
  for (const char digit : number.substr(std::min(point + 1, number.size()))) {
    if (digit < '0' || digit > '9') return wrong();
    nanoseconds += static_cast<uint32_t>(digit - '0') * unit;
    has_rest |= unit == 0 && digit != '0';
    unit /= 10;
  }
  Timestamp time{static_cast<int64_t>(*whole), nanoseconds};
  if (!is_negative) return time;
  // -1.25 is 0.75 s after -2: towards the past for whatever is left below a nanosecond, too.
  if (has_rest) ++nanoseconds;
  time.seconds = -time.seconds;
  time.nanoseconds = 0;
  if (nanoseconds > 0) {
    --time.seconds;
    time.nanoseconds = 1'000'000'000 - nanoseconds;
  }
  return time;
}

Status apply_pax_records(std::string_view body, PaxFields& fields) {
  while (!body.empty()) {
    size_t size = 0;
    const char* const start = body.data();
    const auto [end, error] = std::from_chars(start, start + body.size(), size);
    const auto digits = static_cast<size_t>(end - start);
    if (error != std::errc() || digits >= body.size() || *end != ' ' || size < digits + 3 ||
        size > body.size() || body[size - 1] != '\n') {
      return invalid("malformed pax record");
    }
    const std::string_view record = body.substr(digits + 1, size - digits - 2);
    body.remove_prefix(size);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) return invalid("malformed pax record");
    const std::string_view key = record.substr(0, equals);
    if (auto status = apply_pax_record(key, record.substr(equals + 1), fields); !status) {
      return fail(std::move(status).error(), "pax record " + quoted(key));
    }
  }
  return {};
}

}  // namespace varve::chunkstore::tar
