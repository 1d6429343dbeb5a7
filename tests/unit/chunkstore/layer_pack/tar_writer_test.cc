#include "chunkstore/layer_pack/tar_writer.h"

#include <gtest/gtest.h>

#include "base/file_io.h"
#include "chunkstore/source/byte_stream.h"
#include "chunkstore/source/tar_reader.h"

namespace varve::layer_pack {
namespace {

using chunkstore::tar::Member;

class TarWriterTest : public ::testing::Test {
 protected:
  /// Writes one entry with `content` and reads it back.
  Member round_trip(const TarEntry& entry, const std::string& content = "") {
    std::string archive;
    TarWriter writer([&](ByteView bytes) -> Status {
      archive += as_text(bytes);
      return {};
    });
    EXPECT_TRUE(writer.add(entry));
    if (!content.empty()) {
      EXPECT_TRUE(writer.write_content(as_bytes(content)));
    }
    EXPECT_TRUE(writer.finish());
    EXPECT_EQ(archive.size() % 10240, 0u);
    UniqueFd fd = open_unlinked_temp("/tmp").value();
    EXPECT_TRUE(pwrite_all(fd.get(), 0, as_bytes(archive)));
    const auto stream =
        chunkstore::open_range(std::make_shared<const UniqueFd>(std::move(fd)), 0, archive.size());
    chunkstore::tar::Reader reader(*stream);
    Member member;
    const auto has_member = reader.next(member);
    EXPECT_TRUE(has_member && *has_member);
    content_.assign(member.size, '\0');
    if (member.size > 0) {
      EXPECT_TRUE(
          reader.content().read({reinterpret_cast<uint8_t*>(content_.data()), content_.size()}));
    }
    Member rest;
    EXPECT_EQ(reader.next(rest).value(), false);
    return member;
  }

  std::string content_;
};

TEST_F(TarWriterTest, EveryFieldComesBackAtItsLimits) {
  TarEntry entry;
  entry.path = "./" + std::string(255, 'n') + "/\xff\xfe";
  entry.mode = 07777;
  entry.uid = 4294967295;
  entry.gid = 2097152;
  entry.mtime_s = 8589934592;
  entry.mtime_ns = 999999999;
  entry.size = 5;
  const Member member = round_trip(entry, "hello");
  EXPECT_EQ(member.path, entry.path);
  EXPECT_EQ(member.type, '0');
  EXPECT_EQ(member.mode, 07777);
  EXPECT_EQ(member.uid, 4294967295u);
  EXPECT_EQ(member.gid, 2097152u);
  EXPECT_EQ(member.mtime.seconds, 8589934592);
  EXPECT_EQ(member.mtime.nanoseconds, 999999999u);
  EXPECT_EQ(content_, "hello");
}

TEST_F(TarWriterTest, TimesBefore1970KeepTheirNanoseconds) {
  const std::pair<int64_t, uint32_t> times[] = {{-1, 0},           {-1, 1},         {-2, 750000000},
                                                {-2147483648, 5},  {0, 1},          {-1, 999999999},
                                                {-99999999999, 7}, {99999999999, 7}};
  for (const auto& [seconds, nanoseconds] : times) {
    TarEntry entry;
    entry.path = "t";
    entry.mtime_s = seconds;
    entry.mtime_ns = nanoseconds;
    const Member member = round_trip(entry);
    EXPECT_EQ(member.mtime.seconds, seconds) << seconds << "+" << nanoseconds;
    EXPECT_EQ(member.mtime.nanoseconds, nanoseconds) << seconds << "+" << nanoseconds;
  }
}

TEST_F(TarWriterTest, XattrsAndAclsComeBackByteForByte) {
  TarEntry entry;
  entry.path = "x";
  entry.xattrs = {{"user.a=b%25", std::string("\0\n=", 3)}, {"user.\xff", ""}};
  EXPECT_EQ(round_trip(entry).xattrs, entry.xattrs);

  // u::rw-, u:7:r--, g::r--, m::r--, o::---
  Bytes acl;
  append_le<uint32_t>(acl, 2);
  const uint32_t entries[][3] = {
      {1, 6, 0xffffffff}, {2, 4, 7}, {4, 4, 0xffffffff}, {16, 4, 0xffffffff}, {32, 0, 0xffffffff}};
  for (const auto& [tag, permissions, id] : entries) {
    append_le<uint16_t>(acl, static_cast<uint16_t>(tag));
    append_le<uint16_t>(acl, static_cast<uint16_t>(permissions));
    append_le<uint32_t>(acl, id);
  }
  entry.xattrs = {{"system.posix_acl_access", std::string(as_text(acl))}};
  EXPECT_EQ(round_trip(entry).acl_access,
            "user::rw-\nuser:7:r--\ngroup::r--\nmask::r--\nother::---\n");
  entry.xattrs = {{"system.posix_acl_access", "no ACL"}};
  EXPECT_EQ(round_trip(entry).xattrs, entry.xattrs);
}

TEST_F(TarWriterTest, LinksAndDevicesComeBack) {
  TarEntry link;
  link.path = "l";
  link.type = '2';
  link.link_path = std::string(4095, 't');
  EXPECT_EQ(round_trip(link).link_path, link.link_path);
  TarEntry device;
  device.path = "b";
  device.type = '4';
  device.dev_major = 4095;
  device.dev_minor = 1048575;
  const Member member = round_trip(device);
  EXPECT_EQ(member.dev_major, 4095u);
  EXPECT_EQ(member.dev_minor, 1048575u);
}

TEST_F(TarWriterTest, AnErrorOfTheSinkEndsTheArchive) {
  TarWriter writer([](ByteView) -> Status { return fail(ErrorCode::kNoSpace, "full"); });
  TarEntry entry;
  entry.path = "f";
  EXPECT_EQ(writer.add(entry).error().code(), ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace varve::layer_pack
