#include "chunkstore/layer_pack/text_output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include <cerrno>
#include <cstdio>

#include "base/bytes.h"

namespace varve::layer_pack {
namespace {

namespace json = boost::json;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

}  // namespace

std::string shown_name(std::string_view name) {
  const bool is_plain = is_utf8(name) && std::none_of(name.begin(), name.end(), [](char letter) {
                          return static_cast<uint8_t>(letter) < 0x20 || letter == 0x7f;
                        });
  // U+0080 to U+009F are control characters too, and start with this byte.
  const bool may_control = name.find('\xc2') != std::string_view::npos;
  return is_plain && !may_control ? std::string(name) : quoted(name);
}

std::string json_name(std::string_view name) {
  return is_utf8(name) ? std::string(name) : quoted(name);
}

// The serializer escapes U+0000 to U+001F only.
std::string shown_json(const json::value& value) {
  const std::string text = json::serialize(value);
  std::string shown;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte == 0x7f) {
      shown += "\\u007f";
    } else if (byte == 0xc2 && at + 1 < text.size() && static_cast<uint8_t>(text[at + 1]) < 0xa0) {
      shown += fmt::format("\\u00{:02x}", static_cast<uint8_t>(text[++at]));
    } else {
      shown += text[at];
    }
  }
  return shown;
}

std::string shown_mode(uint32_t mode) {
  static constexpr char kTypes[] = "?pc?d?b?-?l?s???";
  std::string text(1, kTypes[(mode & S_IFMT) >> 12]);
  for (int shift = 6; shift >= 0; shift -= 3) {
    text += (mode >> shift & 4) != 0 ? 'r' : '-';
    text += (mode >> shift & 2) != 0 ? 'w' : '-';
    text += (mode >> shift & 1) != 0 ? 'x' : '-';
  }
  const auto mark = [&](uint32_t bit, size_t at, char letter) {
    if ((mode & bit) == 0) return;
    text[at] = text[at] == 'x' ? letter : static_cast<char>(letter - 'a' + 'A');
  };
  mark(S_ISUID, 3, 's');
  mark(S_ISGID, 6, 's');
  mark(S_ISVTX, 9, 't');
  return text;
}

std::string shown_time(int64_t seconds, uint32_t nanoseconds) {
  std::string fraction;
  if (nanoseconds != 0) {
    fraction = fmt::format(".{:09}", nanoseconds);
    fraction.resize(fraction.find_last_not_of('0') + 1);
  }
  const time_t time = seconds;
  tm parts;
  if (::gmtime_r(&time, &parts) == nullptr) return fmt::format("@{}{}", seconds, fraction);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", parts.tm_year + 1900LL,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     fraction);
}

void add_path(json::object& object, std::string_view path) {
  if (is_utf8(path)) {
    object["path"] = json::string(path);
  } else {
    object["path_hex"] = hex(path);
  }
}

void add_inode(json::object& object, const chunkstore::erofs::Inode& inode) {
  object["mode"] = inode.mode;
  object["uid"] = inode.uid;
  object["gid"] = inode.gid;
  object["nlink"] = inode.nlink;
  object["mtime_s"] = inode.mtime_s;
  object["mtime_ns"] = inode.mtime_ns;
  if (S_ISCHR(inode.mode) || S_ISBLK(inode.mode)) {
    object["rdev_major"] = gnu_dev_major(inode.rdev);
    object["rdev_minor"] = gnu_dev_minor(inode.rdev);
  } else {
    object["size"] = inode.size;
  }
}

void print_json(const ToolIo& io, const json::value& value) {
  print_line(io, json::serialize(value));
}

void print_line(const ToolIo& io, std::string_view line) {
  write_output(io, as_bytes(line));
  write_output(io, as_bytes("\n"));
}

void write_output(const ToolIo& io, ByteView bytes) {
  if (io.out_errno != 0) return;
  errno = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), io.out) != bytes.size()) {
    io.out_errno = errno == 0 ? EIO : errno;
  }
}

Status output_status(const ToolIo& io) {
  if (io.out_errno == 0) return {};
  return fail_errno(io.out_errno, "writing to standard output");
}

Status report_damaged_names(const ToolIo& io, const std::string& store,
                            const std::vector<Error>& damaged) {
  if (damaged.empty()) return {};
  for (const Error& error : damaged) {
    fmt::print(io.err, "layer-pack: {}\n", error.to_string());
  }
  return fail(ErrorCode::kCorruption, fmt::format("{} damaged name{} in store {}", damaged.size(),
                                                  damaged.size() == 1 ? "" : "s", quoted(store)));
}

Status finish_output(const ToolIo& io) {
  errno = 0;
  if (io.out_errno == 0 && (std::fflush(io.out) != 0 || std::ferror(io.out) != 0)) {
    io.out_errno = errno == 0 ? EIO : errno;
  }
  return output_status(io);
}

}  // namespace varve::layer_pack
