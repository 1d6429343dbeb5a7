#include "chunkstore/source/tar_source.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "chunkstore/source/tar_reader.h"
#include "tests/unit/chunkstore/source/entry_collector.h"
#include "tests/unit/chunkstore/source/tar_builder.h"

namespace varve::chunkstore {
namespace {

std::unique_ptr<ByteStream> stream_of(const std::string& bytes) {
  UniqueFd fd = open_unlinked_temp("/tmp").value();
  EXPECT_TRUE(write_all(fd.get(), as_bytes(bytes)));
  ::lseek(fd.get(), 0, SEEK_SET);
  return open_descriptor(std::move(fd));
}

Result<EntryCollector> collect(const std::string& bytes, TarMode mode = TarMode::kPlain) {
  EntryCollector collector;
  VARVE_TRY(make_tar_source(stream_of(bytes), "t.tar", mode)->read_into(collector));
  return collector;
}

/// The error of reading `bytes`, which must name the archive and `name`.
Error failure(const std::string& bytes, const std::string& name, TarMode mode = TarMode::kPlain) {
  const auto result = collect(bytes, mode);
  if (result) {
    ADD_FAILURE() << "was accepted; expected an error naming " << name;
    return Error(ErrorCode::kInternal, "accepted");
  }
  EXPECT_NE(result.error().to_string().find("t.tar"), std::string::npos);
  EXPECT_NE(result.error().to_string().find(name), std::string::npos) << result.error().to_string();
  return result.error();
}

std::string compressed(const std::string& bytes, int (*add_filter)(archive*)) {
  std::string out(bytes.size() * 2 + 65536, '\0');
  size_t used = 0;
  archive* const writer = archive_write_new();
  EXPECT_EQ(add_filter(writer), ARCHIVE_OK);
  archive_write_set_format_raw(writer);
  EXPECT_EQ(archive_write_open_memory(writer, out.data(), out.size(), &used), ARCHIVE_OK);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK);
  EXPECT_EQ(archive_write_data(writer, bytes.data(), bytes.size()),
            static_cast<la_ssize_t>(bytes.size()));
  archive_entry_free(entry);
  archive_write_close(writer);
  archive_write_free(writer);
  out.resize(used);
  return out;
}

/// Incompressible, so that a cut compressed stream has lost data.
std::string noise(size_t size) {
  std::string text(size, '\0');
  uint64_t state = 88172645463325252ULL;
  for (char& byte : text) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return text;
}

TEST(TarSourceTest, ReadsEveryTypeAndItsAttributes) {
  TarBuilder tar;
  tar.member({.name = "./", .type = '5', .mode = "0000700", .uid = "0000005"})
      .member({.name = "./f",
               .mode = "0004755",
               .uid = "0000012",
               .gid = "0000013",
               .mtime = "00000000144"},
              "hello")
      .member({.name = "./l", .type = '2', .link = "../anything/at/all"})
      .member({.name = "./c", .type = '3', .dev_major = "0000005", .dev_minor = "0000002"})
      .member({.name = "./b", .type = '4', .dev_major = "0000007", .dev_minor = "0001000"})
      .member({.name = "./p", .type = '6'})
      .member({.name = "./h", .type = '1', .link = "./f"});
  const auto got = collect(tar.bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  ASSERT_EQ(got->entries.size(), 7u);
  EXPECT_EQ(got->find("")->type, EntryType::kDirectory);
  EXPECT_EQ(got->find("")->uid, 5u);
  const Entry& file = *got->find("f");
  EXPECT_EQ(file.mode, 04755);
  EXPECT_EQ(file.uid, 10u);
  EXPECT_EQ(file.gid, 11u);
  EXPECT_EQ(file.mtime_s, 100);
  EXPECT_EQ(got->contents.at("f"), "hello");
  EXPECT_EQ(got->find("l")->target, "../anything/at/all");
  EXPECT_EQ(got->find("c")->rdev_major, 5u);
  EXPECT_EQ(got->find("b")->rdev_minor, 512u);
  EXPECT_EQ(got->find("p")->type, EntryType::kFifo);
  EXPECT_EQ(got->find("h")->target, "f");
}

TEST(TarSourceTest, EverySpellingOfTheRootIsOneRoot) {
  for (const char* name : {"./", "/", ".", "//"}) {
    const auto got = collect(TarBuilder().member({.name = name, .type = '5'}).bytes());
    ASSERT_TRUE(got) << name << got.error().to_string();
    EXPECT_EQ(got->entries.at(0).path, "") << name;
  }
  failure(TarBuilder().member({.name = "/"}, "x").bytes(), "root must be a directory");
}

TEST(TarSourceTest, AbsoluteAndDotDotNamesAreErrorsThatNameThem) {
  failure(TarBuilder().member({.name = "/etc/passwd"}).bytes(), "'/etc/passwd'");
  failure(TarBuilder().member({.name = "a/../../x"}).bytes(), "'a/../../x'");
  failure(TarBuilder().member({.name = "h", .type = '1', .link = "../x"}).bytes(), "'../x'");
  failure(TarBuilder().pax({{"path", "../long"}}).member({.name = "x"}).bytes(), "'../long'");
}

TEST(TarSourceTest, PaxRecordsGiveTheExactBytesOfXattrs) {
  const std::string value("a\0\n=\xff", 5);
  const auto got = collect(TarBuilder()
                               .pax({{"SCHILY.xattr.user.\xff", value},
                                     {"SCHILY.xattr.user.a%3Db%25", "1"},
                                     {"SCHILY.xattr.security.capability", std::string(20, '\0')},
                                     {"comment", "no xattr"},
                                     {"mtime", "-1.25"}})
                               .member({.name = "f"})
                               .bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  const Entry& file = got->entries.at(0);
  EXPECT_EQ(file.xattrs,
            (std::map<std::string, std::string>{{"user.\xff", value},
                                                {"user.a=b%", "1"},
                                                {"security.capability", std::string(20, '\0')}}));
  EXPECT_EQ(file.mtime_s, -2);
  EXPECT_EQ(file.mtime_ns, 750'000'000u);
}

TEST(TarSourceTest, LibarchivesOwnXattrRecordsKeepTheNamesApart) {
  // What libarchive 3.6 writes for `user.a=b% \xff`: each attribute twice, both names encoded.
  const auto got = collect(TarBuilder()
                               .pax({{"LIBARCHIVE.xattr.user.a%3Db%25%20%FF", "dgB3"},
                                     {"SCHILY.xattr.user.a%3Db%25%20%FF", std::string("v\0w", 3)}})
                               .member({.name = "f"})
                               .bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.at(0).xattrs,
            (std::map<std::string, std::string>{{"user.a=b% \xff", std::string("v\0w", 3)}}));
}

TEST(TarSourceTest, AclRecordsBecomeTheKernelsXattrUnlessItIsThereItself) {
  const std::string text = "user::rwx\nuser:7:r--\ngroup::r-x\nmask::rw-\nother::--x\n";
  auto got = collect(TarBuilder()
                         .pax({{"SCHILY.acl.access", text}, {"SCHILY.acl.default", text}})
                         .member({.name = "d", .type = '5', .mode = "0001777"})
                         .bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.at(0).xattrs.size(), 2u);
  EXPECT_EQ(got->entries.at(0).xattrs.at("system.posix_acl_access").size(), 44u);
  EXPECT_EQ(got->entries.at(0).mode, 01761);
  got = collect(
      TarBuilder()
          .pax({{"SCHILY.acl.access", text}, {"SCHILY.xattr.system.posix_acl_access", "raw"}})
          .member({.name = "f"})
          .bytes());
  EXPECT_EQ(got->entries.at(0).xattrs.at("system.posix_acl_access"), "raw");
  got = collect(TarBuilder()
                    .pax({{"SCHILY.acl.access", "user::rw-\ngroup::r--\nother::r--"}})
                    .member({.name = "f"})
                    .bytes());
  EXPECT_TRUE(got->entries.at(0).xattrs.empty());
  failure(TarBuilder().pax({{"SCHILY.acl.access", "user::rw-"}}).member({.name = "bad"}).bytes(),
          "'bad'");
}

TEST(TarSourceTest, LongNamesOfAllThreeKindsAreRead) {
  const std::string directory(120, 'd');
  const std::string path = directory + "/" + std::string(150, 'f');
  const std::string target = path + "/target";
  TarBuilder tar;
  tar.member({.name = std::string(90, 'n'), .prefix = directory})
      .member({.name = "././@LongLink", .type = 'L'}, path + '\0')
      .member({.name = "././@LongLink", .type = 'K'}, target + '\0')
      .member({.name = "short", .type = '2', .link = "short", .magic = "ustar  "})
      .pax({{"path", path + "2"}, {"linkpath", target + "2"}})
      .member({.name = "short", .type = '2', .link = "short"});
  const auto got = collect(tar.bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->entries.at(0).path, directory + "/" + std::string(90, 'n'));
  EXPECT_EQ(got->entries.at(1).path, path);
  EXPECT_EQ(got->entries.at(1).target, target);
  EXPECT_EQ(got->entries.at(2).path, path + "2");
  EXPECT_EQ(got->entries.at(2).target, target + "2");
}

TEST(TarSourceTest, GlobalRecordsHoldUntilAMemberSaysOtherwise) {
  TarBuilder tar;
  tar.pax({{"uid", "70000"}, {"comment", "git"}}, 'g')
      .member({.name = "a"})
      .pax({{"uid", "4294967294"}})
      .member({.name = "b"})
      .pax({{"uid", ""}})
      .member({.name = "c", .uid = "0000003"});
  const auto got = collect(tar.bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->find("a")->uid, 70000u);
  EXPECT_EQ(got->find("b")->uid, 4294967294u);
  EXPECT_EQ(got->find("c")->uid, 3u);
}

TEST(TarSourceTest, NumbersInBase256AreSignedAndBounded) {
  const std::string big("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12);  // size 5
  const std::string before_1970("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 12);
  const std::string far("\x80\0\0\0\0\0\0\x10\0\0\0\0", 12);
  const std::string id("\x80\0\0\0\xff\xff\xff\xfe", 8);
  const auto got =
      collect(TarBuilder()
                  .member({.name = "a", .uid = id, .size = big, .mtime = before_1970}, "12345")
                  .member({.name = "b", .mtime = far})
                  .bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->contents.at("a"), "12345");
  EXPECT_EQ(got->find("a")->uid, 4294967294u);
  EXPECT_EQ(got->find("a")->mtime_s, -2);
  EXPECT_EQ(got->find("b")->mtime_s, 0x1000000000);
  const std::string too_big("\x80\xff\0\0\0\0\0\0\0\0\0\x05", 12);
  failure(TarBuilder().member({.name = "huge", .size = too_big}).bytes(), "'huge'");
  const std::string negative("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  failure(TarBuilder().member({.name = "neg", .size = negative}).bytes(), "'neg'");
  const std::string id_too_big("\x80\0\0\x01\0\0\0\0", 8);
  failure(TarBuilder().member({.name = "id", .uid = id_too_big}).bytes(), "'id'");
}

TEST(TarSourceTest, NegativeAndSillySizesInPaxAreRefused) {
  for (const char* size : {"-1", "18446744073709551616", "9223372036854775807", "1x", " 1"}) {
    failure(TarBuilder().pax({{"size", size}}).member({.name = "f"}).bytes(), "");
  }
}

TEST(TarSourceTest, DamagedHeadersAndRecordsAreRefused) {
  std::string bytes = TarBuilder().member({.name = "a"}).member({.name = "b"}).bytes();
  bytes[512 + 10] = 'x';
  EXPECT_EQ(failure(bytes, "offset 512").code(), ErrorCode::kInvalidArgument);
  failure("this is not a tar file at all" + std::string(1000, 'x'), "not a tar archive");
  for (const std::string body : {"5 a=b\n", "0 a=b\n", "99 a=b\n", "6 a=b", "6 ab1\n", "x a=b\n",
                                 "5 =b\n", "4 =\n", "18446744073709551617 a=b\n"}) {
    failure(TarBuilder().member({.name = "x", .type = 'x'}, body).member({.name = "f"}).bytes(),
            "pax record");
  }
  failure(TarBuilder().member({.name = "x", .type = 'x', .size = "77777777777"}).bytes(),
          "too large");
}

TEST(TarSourceTest, RecordsThatAreTooMuchTogetherAreRefused) {
  const std::string value(6 << 20, 'v');
  for (const char type : {'x', 'g'}) {
    TarBuilder tar;
    for (const char* name : {"user.a", "user.b", "user.c"}) {
      tar.pax({{std::string("SCHILY.xattr.") + name, value}}, type);
      // Global records add up whatever lies between them.
      if (type == 'g') tar.member({.name = name});
    }
    failure(tar.member({.name = "f"}).bytes(), "together");
  }
}

TEST(TarSourceTest, AnArchiveCutAnywhereIsAnError) {
  const std::string whole = TarBuilder()
                                .member({.name = "first"}, "content")
                                .pax({{"mtime", "1.5"}})
                                .member({.name = "second"}, std::string(2000, 's'))
                                .open_bytes();
  for (size_t size = 0; size <= whole.size(); size += 100) {
    failure(whole.substr(0, size), "");
  }
  failure(whole, "truncated");
  EXPECT_TRUE(collect(whole + std::string(512, '\0'))) << "one zero block is an end mark";
  EXPECT_TRUE(collect(whole + std::string(512, '\0') + "less than a block"));
  EXPECT_TRUE(collect(whole + std::string(10240, '\0') + "trailing rubbish"));
}

TEST(TarSourceTest, ABlockOfZerosBetweenMembersIsDamageAndNoEnd) {
  const std::string first = TarBuilder().member({.name = "first"}, "content").open_bytes();
  const std::string second = TarBuilder().member({.name = "second"}, "more").bytes();
  EXPECT_EQ(failure(first + std::string(512, '\0') + second, "offset 1024").code(),
            ErrorCode::kInvalidArgument);
  const auto got = collect(first + std::string(1024, '\0') + second);
  ASSERT_TRUE(got) << "two are an end mark: " << got.error().to_string();
  EXPECT_EQ(got->find("second"), nullptr);
}

TEST(TarSourceTest, EveryCompressionIsReadAndEveryCutStreamIsAnError) {
  const std::string content = noise(300'000);
  const std::string tar = TarBuilder().member({.name = "f"}, content).bytes();
  const std::pair<const char*, int (*)(archive*)> filters[] = {
      {"gzip", archive_write_add_filter_gzip},
      {"bzip2", archive_write_add_filter_bzip2},
      {"xz", archive_write_add_filter_xz},
      {"zstd", archive_write_add_filter_zstd}};
  for (const auto& [name, filter] : filters) {
    const std::string packed = compressed(tar, filter);
    const auto got = collect(packed);
    ASSERT_TRUE(got) << name << got.error().to_string();
    EXPECT_EQ(got->contents.at("f"), content) << name;
    for (const size_t missing : {size_t{1}, size_t{9}, packed.size() / 2, packed.size() - 30}) {
      SCOPED_TRACE(std::string(name) + " without its last " + std::to_string(missing));
      failure(packed.substr(0, packed.size() - missing), "");
    }
  }
  // Two compressed streams, one after another, are one archive (pigz, zstd -T, cat).
  const std::string half = tar.substr(0, tar.size() / 2);
  const std::string rest = tar.substr(tar.size() / 2);
  for (const auto& [name, filter] : filters) {
    const auto got = collect(compressed(half, filter) + compressed(rest, filter));
    ASSERT_TRUE(got) << name << got.error().to_string();
    EXPECT_EQ(got->contents.at("f"), content) << name;
  }
}

TEST(TarSourceTest, ADamagedByteInACompressedStreamIsAnError) {
  const std::string tar = TarBuilder().member({.name = "f"}, noise(300'000)).bytes();
  const std::pair<const char*, int (*)(archive*)> filters[] = {
      {"gzip", archive_write_add_filter_gzip},
      {"bzip2", archive_write_add_filter_bzip2},
      {"xz", archive_write_add_filter_xz}};
  for (const auto& [name, filter] : filters) {
    const std::string packed = compressed(tar, filter);
    // The last of them lie in the checksum and the length at the end.
    for (const size_t at : {packed.size() / 2, packed.size() - 6, packed.size() - 2}) {
      SCOPED_TRACE(std::string(name) + " at " + std::to_string(at));
      std::string damaged = packed;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      EXPECT_EQ(failure(damaged, "").code(), ErrorCode::kInvalidArgument);
    }
    // Of two streams the second.
    std::string damaged = compressed("", filter) + packed;
    damaged[damaged.size() - packed.size() / 2] ^= 1;
    failure(damaged, "");
  }
}

TEST(TarSourceTest, WhatIsNoGzipBehindAGzipStreamIsIgnored) {
  const std::string tar = TarBuilder().member({.name = "f"}, "content").bytes();
  const std::string packed = compressed(tar, archive_write_add_filter_gzip);
  for (const std::string& rest :
       {std::string(2000, '\0'), std::string("rubbish"), packed.substr(0, 1)}) {
    const auto got = collect(packed + rest);
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->contents.at("f"), "content");
  }
}

TEST(TarSourceTest, UnsupportedMembersAreErrorsThatNameThem) {
  EXPECT_EQ(failure(TarBuilder().member({.name = "multi", .type = 'M'}).bytes(), "'multi'").code(),
            ErrorCode::kUnsupported);
  failure(TarBuilder().member({.name = "odd", .type = '?'}).bytes(), "'odd'");
  failure(TarBuilder().member({.name = "wh", .type = '3'}).bytes(), "'wh'");
  failure(TarBuilder().pax({{"SUN.holesdata", " 0 1"}}).member({.name = "s"}).bytes(),
          "SUN.holesdata");
  failure(TarBuilder().member({.name = "empty-link", .type = '2'}).bytes(), "'empty-link'");
}

TEST(TarSourceTest, AllSparseFormatsGiveTheWholeFile) {
  std::string expected(10'000, '\0');
  expected.replace(1024, 5, "first");
  expected.replace(9000, 6, "second");
  const std::string data = "firstsecond";
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"GNU.sparse.size", "10000"}, {"GNU.sparse.numblocks", "2"}, {"GNU.sparse.offset", "1024"},
      {"GNU.sparse.numbytes", "5"}, {"GNU.sparse.offset", "9000"}, {"GNU.sparse.numbytes", "6"}};
  std::string map = "2\n1024\n5\n9000\n6\n";
  map.resize(512, '\0');
  const auto gnu_pair = [](unsigned offset, unsigned size) {
    char text[25];
    std::snprintf(text, sizeof(text), "%011o%c%011o", offset, 0, size);
    return std::string(text, 24);
  };
  std::string raw = gnu_pair(1024, 5) + gnu_pair(9000, 6);
  raw.resize(97, '\0');
  raw += "00000023420";  // 10,000
  TarBuilder tar;
  tar.pax(pairs).member({.name = "f00"}, data);
  tar.pax({{"GNU.sparse.size", "10000"},
           {"GNU.sparse.map", "1024,5,9000,6"},
           {"GNU.sparse.name", "f01"}})
      .member({.name = "GNUSparseFile.1/f01"}, data);
  tar.pax({{"GNU.sparse.major", "1"},
           {"GNU.sparse.minor", "0"},
           {"GNU.sparse.name", "f10"},
           {"GNU.sparse.realsize", "10000"}})
      .member({.name = "GNUSparseFile.1/f10"}, map + data);
  tar.member({.name = "gnu", .type = 'S', .magic = "ustar  ", .raw_at_386 = raw}, data);
  tar.member({.name = "after"}, "plain");
  const auto got = collect(tar.bytes());
  ASSERT_TRUE(got) << got.error().to_string();
  for (const char* name : {"f00", "f01", "f10", "gnu"}) {
    ASSERT_NE(got->find(name), nullptr) << name;
    EXPECT_EQ(got->find(name)->size, 10'000u) << name;
    EXPECT_TRUE(got->contents.at(name) == expected) << name;
  }
  EXPECT_EQ(got->contents.at("after"), "plain");
}

TEST(TarSourceTest, HolesOfSparseFilesNeedNotBeRead) {
  // Read as zeros, the second hole would take hours.
  constexpr uint64_t kSize = uint64_t{1} << 60;
  const std::string tar =
      TarBuilder()
          .pax({{"GNU.sparse.size", std::to_string(kSize)}, {"GNU.sparse.map", "1024,5"}})
          .member({.name = "f"}, "first")
          .bytes();
  const auto stream = stream_of(tar);
  tar::Reader reader(*stream);
  tar::Member member;
  ASSERT_TRUE(reader.next(member).value());
  EXPECT_EQ(member.size, kSize);
  ContentStream& content = reader.content();
  Bytes buffer(100);
  EXPECT_EQ(content.skip_hole().value(), 1024u);
  EXPECT_EQ(content.skip_hole().value(), 0u);
  EXPECT_EQ(content.read(MutableByteView(buffer).first(3)).value(), 3u);
  EXPECT_EQ(content.skip_hole().value(), 0u);
  EXPECT_EQ(content.read(buffer).value(), 2u);
  EXPECT_EQ(content.read(buffer).value(), 100u);
  EXPECT_EQ(content.skip_hole().value(), kSize - 1129);
  EXPECT_EQ(content.skip_hole().value(), 0u);
  EXPECT_EQ(content.read(buffer).value(), 0u);
  EXPECT_FALSE(reader.next(member).value());
}

TEST(TarSourceTest, SparseMapsThatLieAreRefused) {
  for (const char* runs : {"0,5,3,6", "1024,5,9999,6", "0,4", "9,9,9", "18446744073709551615,11",
                           "0,18446744073709551615"}) {
    SCOPED_TRACE(runs);
    failure(TarBuilder()
                .pax({{"GNU.sparse.size", "10000"}, {"GNU.sparse.map", runs}})
                .member({.name = "f"}, "firstsecond")
                .bytes(),
            "");
  }
  failure(
      TarBuilder()
          .pax(
              {{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.realsize", "10"}})
          .member({.name = "f"}, "99999999999\n1\n")
          .bytes(),
      "");
}

TEST(TarSourceTest, OciWhiteoutNamesBecomeMarks) {
  TarBuilder tar;
  tar.member({.name = "d/b"}, "b")
      .member({.name = "d/.wh..wh..opq"})
      .member({.name = "d/.wh.gone"})
      .member({.name = ".wh.top"})
      .member({.name = ".wh..wh..opq"})
      .member({.name = ".wh..wh.plnk/1.2"}, "aufs");
  const auto got = collect(tar.bytes(), TarMode::kOciLayer);
  ASSERT_TRUE(got) << got.error().to_string();
  ASSERT_EQ(got->entries.size(), 5u);
  EXPECT_EQ(got->entries[1].type, EntryType::kOpaque);
  EXPECT_EQ(got->entries[1].path, "d");
  EXPECT_EQ(got->entries[2].type, EntryType::kWhiteout);
  EXPECT_EQ(got->entries[2].path, "d/gone");
  EXPECT_EQ(got->entries[3].path, "top");
  EXPECT_EQ(got->entries[4].type, EntryType::kOpaque);
  EXPECT_EQ(got->entries[4].path, "");

  const auto plain = collect(tar.bytes(), TarMode::kPlain);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->entries.size(), 6u);
  EXPECT_EQ(plain->entries[2].type, EntryType::kRegular);
}

TEST(TarSourceTest, WhiteoutsOfImpossibleNamesAreRefused) {
  for (const char* name : {"d/.wh.", "d/.wh..", "d/.wh...", "d/.wh.x/y"}) {
    failure(TarBuilder().member({.name = name}).bytes(), name, TarMode::kOciLayer);
  }
}

TEST(TarSourceTest, AMissingFileIsAnErrorWithItsPath) {
  const auto source = open_tar_source("/nonexistent/x.tar", TarMode::kPlain);
  ASSERT_FALSE(source);
  EXPECT_NE(source.error().to_string().find("/nonexistent/x.tar"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
