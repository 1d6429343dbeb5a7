#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::chunkstore {

/// Writes tar archives byte by byte, also ones that no tar program would write.
class TarBuilder {
 public:
  struct Header {
    std::string name;
    char type = '0';
    std::string mode = "0000644";
    std::string uid = "0000000";
    std::string gid = "0000000";
    std::string size;  ///< Octal digits or raw field bytes; from the data when empty.
    std::string mtime = "00000000000";
    std::string link;
    std::string magic = std::string(
        "ustar\0"
        "00",
        8);
    std::string prefix;
    std::string raw_at_386;  ///< Old GNU sparse fields.
    std::string dev_major = "0000000";
    std::string dev_minor = "0000000";
  };

  TarBuilder& member(const Header& header, std::string_view data = {}) {
    char block[512] = {};
    const auto put = [&](size_t at, std::string_view text, size_t size_max) {
      std::memcpy(block + at, text.data(), std::min(text.size(), size_max));
    };
    char size[13];
    std::snprintf(size, sizeof(size), "%011zo", data.size());
    put(0, header.name, 100);
    put(100, header.mode, 8);
    put(108, header.uid, 8);
    put(116, header.gid, 8);
    put(124, header.size.empty() ? std::string(size) : header.size, 12);
    put(136, header.mtime, 12);
    std::memset(block + 148, ' ', 8);
    block[156] = header.type;
    put(157, header.link, 100);
    put(257, header.magic, 8);
    put(329, header.dev_major, 8);
    put(337, header.dev_minor, 8);
    put(345, header.prefix, 155);
    put(386, header.raw_at_386, 126);
    unsigned sum = 0;
    for (const char byte : block) sum += static_cast<unsigned char>(byte);
    std::snprintf(block + 148, 8, "%06o", sum);
    bytes_.append(block, sizeof(block));
    return raw(data);
  }

  /// Data, padded to a block.
  TarBuilder& raw(std::string_view data) {
    bytes_.append(data);
    bytes_.append((512 - data.size() % 512) % 512, '\0');
    return *this;
  }

  /// A pax header for the next member (or with 'g' for all that follow).
  TarBuilder& pax(const std::vector<std::pair<std::string, std::string>>& records,
                  char type = 'x') {
    std::string body;
    for (const auto& [key, value] : records) body += pax_record(key, value);
    return member({.name = "PaxHeaders/x", .type = type}, body);
  }

  static std::string pax_record(const std::string& key, const std::string& value) {
    const std::string rest = " " + key + "=" + value + "\n";
    size_t size = rest.size() + 1;
    while (std::to_string(size).size() + rest.size() != size) ++size;
    return std::to_string(size) + rest;
  }

  /// The archive so far, without an end mark.
  const std::string& open_bytes() const { return bytes_; }
  std::string bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  std::string bytes_;
};

}  // namespace varve::chunkstore
