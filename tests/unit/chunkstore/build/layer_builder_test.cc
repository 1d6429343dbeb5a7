#include "chunkstore/build/layer_builder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "tests/unit/chunkstore/build/build_test.h"

namespace varve::chunkstore {
namespace {

/// A tree with something of everything.
std::vector<TestEntry> mixed_tree() {
  std::vector<TestEntry> entries = {directory("", 0755), directory("bin"), directory("etc", 01777),
                                    directory("empty")};
  for (int i = 0; i < 200; ++i)
    entries.push_back(file("bin/tool" + std::to_string(i), noise(100 + i * 211, i % 150)));
  for (int i = 0; i < 5; ++i)
    entries.push_back(file("big" + std::to_string(i), noise(200'000 + i * 300'000, 1000 + i % 4)));
  entries.push_back(file("sparse", noise(70'000, 5) + std::string(1 << 20, '\0') + "end"));
  entries.push_back(file("zeros", std::string(1 << 20, '\0')));
  entries.push_back(file("none", ""));
  entries.push_back(symlink_to("etc/link", "../bin/tool1"));
  entries.push_back(symlink_to("etc/long", std::string(4095, 't')));
  entries.push_back(hard_link("etc/hard", "bin/tool7"));
  entries.push_back(hard_link("a-first", "bin/tool7"));
  entries.push_back(hard_link("etc/hard-big", "big1"));
  entries.push_back(hard_link("etc/hard-link", "etc/link"));
  entries.push_back(device("etc/null", EntryType::kCharDevice, 1, 3));
  entries.push_back(device("etc/disk", EntryType::kBlockDevice, 4095, 1048575));
  entries.push_back(make_entry("etc/fifo", EntryType::kFifo, 0640));
  entries.push_back(make_entry("etc/socket", EntryType::kSocket, 0700));
  entries.push_back(whiteout("gone"));
  entries.push_back(opaque("etc"));
  entries[5].entry.xattrs = {{"user.k", "v"}, {"security.capability", std::string(20, '\1')}};
  entries[6].entry.uid = 70000;
  entries[6].entry.gid = 4294967294;
  entries[7].entry.mtime_s = -5;
  entries[7].entry.mtime_ns = 999'999'999;
  entries[8].entry.mtime_s = int64_t{1} << 40;
  return entries;
}

TEST(LayerBuilderTest, AnEmptySourceIsARootDirectory) {
  const BuiltImage built = build_image({});
  EXPECT_EQ(built.layer.root_nid, 36U);
  EXPECT_EQ(built.inode("").mode, S_IFDIR | 0755U);
  EXPECT_EQ(built.inode("").nlink, 2U);
  EXPECT_TRUE(built.names("").empty());
  EXPECT_EQ(built.layer.image_size, built.layer.metadata_size);
}

TEST(LayerBuilderTest, ReadsBackEveryAttributeAndContent) {
  const auto entries = mixed_tree();
  const BuiltImage built = build_image(entries);
  for (const TestEntry& test : entries) {
    const Entry& entry = test.entry;
    if (entry.type == EntryType::kHardLink || entry.type == EntryType::kWhiteout ||
        entry.type == EntryType::kOpaque)
      continue;
    const erofs::Inode inode = built.inode(entry.path);
    EXPECT_EQ(inode.mode & 07777, entry.mode) << entry.path;
    EXPECT_EQ(inode.uid, entry.uid) << entry.path;
    EXPECT_EQ(inode.gid, entry.gid) << entry.path;
    EXPECT_EQ(inode.mtime_s, entry.mtime_s) << entry.path;
    EXPECT_EQ(inode.mtime_ns, entry.mtime_ns) << entry.path;
    if (entry.type == EntryType::kRegular) {
      EXPECT_EQ(built.content(entry.path), test.content) << entry.path;
    }
    if (entry.type == EntryType::kSymlink) {
      EXPECT_EQ(built.reader->read_link(inode).value_or(""), entry.target) << entry.path;
    }
    if (entry.path != "etc" && !entry.path.empty()) {
      EXPECT_EQ(built.xattrs(entry.path), entry.xattrs) << entry.path;
    }
  }
  EXPECT_EQ(erofs::rdev_major(built.inode("etc/disk").rdev), 4095U);
  EXPECT_EQ(erofs::rdev_minor(built.inode("etc/disk").rdev), 1048575U);
  EXPECT_EQ(built.inode("bin/tool7").nlink, 3U);
  EXPECT_EQ(built.inode("bin/tool7").nid, built.inode("etc/hard").nid);
  EXPECT_EQ(built.inode("bin/tool7").nid, built.inode("a-first").nid);
  EXPECT_EQ(built.inode("etc/link").nid, built.inode("etc/hard-link").nid);
  EXPECT_EQ(built.inode("gone").mode, static_cast<uint32_t>(S_IFCHR));
  EXPECT_EQ(built.inode("gone").rdev, 0U);
  EXPECT_EQ(built.xattrs("etc"),
            (std::map<std::string, std::string>{{"trusted.overlay.opaque", "y"}}));
  // The root holds a whiteout.
  EXPECT_EQ(built.xattrs(""), (std::map<std::string, std::string>{{"trusted.overlay.origin", ""}}));
  EXPECT_EQ(built.inode("").nlink, 5U);
  const std::map<uint32_t, std::string> ids = {{70000, "bin/tool2"}, {4294967294, "bin/tool2"}};
  EXPECT_EQ(built.layer.high_ids, ids);
}

TEST(LayerBuilderTest, TheSameTreeGivesTheSameLayerInEveryOrderAndKindOfSource) {
  auto entries = mixed_tree();
  MemorySink sink;
  const Bytes expected = sink.image(*build(sink, entries));
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    // Hard links may come before their targets, but not after a replacement: there is none.
    std::shuffle(entries.begin(), entries.end(), random);
    for (const Contents contents : {Contents::kStreamed, Contents::kDeferred}) {
      for (const size_t memory_bytes : {size_t{160} << 20, size_t{64} << 10}) {
        LayerBuilderOptions options;
        options.sort_memory_bytes = memory_bytes;
        auto layer = build(sink, entries, contents, options);
        ASSERT_TRUE(layer.has_value()) << layer.error().to_string();
        EXPECT_EQ(sink.image(*layer), expected);
      }
    }
  }
}

TEST(LayerBuilderTest, TheBytesOfAKnownTreeNeverChange) {
  // A change here gives every layer in every store another id: it needs a new format version.
  const BuiltImage built = build_image(mixed_tree());
  EXPECT_EQ(sha256(built.bytes).hex(),
            "786497b6cd2d43cc3c1df6647be2b4d30b7b24a230f84d244452254df3872bda");
  std::string cuts;
  for (const LayerChunk& chunk : built.layer.chunks) cuts += std::to_string(chunk.raw_size) + " ";
  EXPECT_EQ(sha256(as_bytes(cuts)).hex(),
            "8153028f2217e27280183f09ef7a55238f9b37af6a5dd2b77647892e854dd6f2");
}

TEST(LayerBuilderTest, IdenticalFilesShareTheirBlocks) {
  const std::string small = noise(10'000, 1);
  const std::string large = noise(500'000, 2);
  std::string sparse = noise(100'000, 3) + std::string(300'000, '\0') + noise(10, 4);
  const BuiltImage built = build_image({file("a", small), file("b", small), file("c", large),
                                        file("d", large), file("e", sparse), file("f", sparse)});
  EXPECT_EQ(built.inode("a").layout_word, built.inode("b").layout_word);
  EXPECT_EQ(built.inode("c").layout_word, built.inode("d").layout_word);
  EXPECT_EQ(built.content("b"), small);
  EXPECT_EQ(built.content("d"), large);
  EXPECT_EQ(built.content("f"), sparse);
  EXPECT_EQ(built.layer.counts.shared_files, 3U);
  EXPECT_LT(built.layer.image_size, 900'000U);
}

TEST(LayerBuilderTest, HolesTakeNoSpace) {
  const std::string content = noise(65536, 1) + std::string(64 << 20, '\0') + noise(65536, 2);
  const BuiltImage built = build_image({file("f", content)});
  EXPECT_EQ(built.content("f"), content);
  EXPECT_EQ(built.inode("f").layout, erofs::Layout::kChunkBased);
  EXPECT_LT(built.layer.image_size, 200'000U);
  EXPECT_EQ(built.layer.counts.hole_bytes, uint64_t{64} << 20);
}

TEST(LayerBuilderTest, AFileInFrontMovesOnlyTheChunksAroundIt) {
  std::vector<TestEntry> entries;
  for (int i = 0; i < 400; ++i)
    entries.push_back(file("f" + std::to_string(1000 + i), noise(6000, i)));
  MemorySink before;
  const auto first = build(before, entries);
  entries.push_back(file("a", noise(6000, 9999)));
  MemorySink after;
  const auto second = build(after, entries);
  size_t new_chunks = 0;
  for (const LayerChunk& chunk : second->chunks) {
    const bool is_known = std::any_of(first->chunks.begin(), first->chunks.end(),
                                      [&](const LayerChunk& c) { return c.id == chunk.id; });
    new_chunks += is_known ? 0 : 1;
  }
  // The metadata chunk, and groups until the boundaries meet again.
  EXPECT_LE(new_chunks, 4U);
  EXPECT_GT(second->chunks.size(), 40U);
}

TEST(LayerBuilderTest, DirectoriesOfManyLongNamesKeepTheirOrder) {
  std::vector<TestEntry> entries;
  std::vector<std::string> expected;
  for (int i = 0; i < 5000; ++i) {
    std::string name = std::to_string(i);
    name.resize(i % 3 == 0 ? 255 : 10 + i % 40, static_cast<char>('!' + i % 13));
    expected.push_back(name);
    entries.push_back(file("d/" + name, ""));
  }
  std::sort(expected.begin(), expected.end());
  const BuiltImage built = build_image(entries);
  EXPECT_EQ(built.names("d"), expected);
  for (const std::string& name : expected)
    ASSERT_TRUE(built.reader->lookup(built.inode("d"), name)->has_value()) << name;
}

TEST(LayerBuilderTest, SymlinkTargetsAndXattrsOfEverySizeFit) {
  std::vector<TestEntry> entries;
  for (size_t size = 1; size <= 4095; size += 131)
    entries.push_back(symlink_to("l" + std::to_string(size), std::string(size, 'x')));
  for (size_t size = 0; size <= 65535; size += 5041) {
    TestEntry entry = symlink_to("x" + std::to_string(size), std::string(size % 4095 + 1, 'y'));
    entry.entry.xattrs = {{"user.big", std::string(size, 'v')}, {"trusted.other", "w"}};
    entries.push_back(entry);
    TestEntry dir = directory("d" + std::to_string(size));
    dir.entry.xattrs = entry.entry.xattrs;
    entries.push_back(dir);
    entries.push_back(file("d" + std::to_string(size) + "/f", "x"));
  }
  const BuiltImage built = build_image(entries);
  for (const TestEntry& test : entries) {
    const erofs::Inode inode = built.inode(test.entry.path);
    EXPECT_EQ(built.xattrs(test.entry.path), test.entry.xattrs) << test.entry.path;
    if (test.entry.type == EntryType::kSymlink) {
      EXPECT_EQ(built.reader->read_link(inode).value_or(""), test.entry.target);
    }
  }
}

TEST(LayerBuilderTest, EscapesXattrsOfOverlayfs) {
  TestEntry entry = directory("d");
  entry.entry.xattrs = {{"trusted.overlay.opaque", "y"}, {"trusted.overlay.overlay.x", "z"}};
  const BuiltImage built = build_image({entry});
  const std::map<std::string, std::string> expected = {{"trusted.overlay.overlay.opaque", "y"},
                                                       {"trusted.overlay.overlay.overlay.x", "z"}};
  EXPECT_EQ(built.xattrs("d"), expected);
}

TEST(LayerBuilderTest, ListsHighIdsOfOwnersAndAcls) {
  Bytes acl;
  append_le<uint32_t>(acl, 2);
  const auto add = [&](uint16_t tag, uint32_t id) {
    append_le<uint16_t>(acl, tag);
    append_le<uint16_t>(acl, 7);
    append_le<uint32_t>(acl, id);
  };
  add(0x01, UINT32_MAX);  // the owner: its id means nothing
  add(0x02, 100'000);
  add(0x02, 1'000);
  add(0x08, 200'000);
  TestEntry entry = directory("d");
  entry.entry.xattrs = {{"system.posix_acl_default", std::string(as_text(acl))},
                        {"user.before", "x"},
                        {"user.looks-like-one", std::string(as_text(acl))}};
  TestEntry damaged = file("f", "x");
  damaged.entry.gid = 300'000;
  damaged.entry.xattrs = {{"system.posix_acl_access", "ab"}};
  const std::map<uint32_t, std::string> expected = {{100'000, "d"}, {200'000, "d"}, {300'000, "f"}};
  EXPECT_EQ(build_image({entry, damaged}).layer.high_ids, expected);
}

TEST(LayerBuilderTest, RefusesWhatTheFormatCannotHold) {
  const auto with_xattr = [](std::string name, size_t size) {
    TestEntry entry = file("bad", "x");
    entry.entry.xattrs = {{std::move(name), std::string(size, 'v')}};
    return entry;
  };
  const std::vector<TestEntry> bad = {file("bad/../x", ""),
                                      file("/bad", ""),
                                      file("bad/", ""),
                                      file("bad//x", ""),
                                      file(std::string("bad\0x", 5), ""),
                                      file("bad/" + std::string(256, 'n'), ""),
                                      symlink_to("bad", ""),
                                      symlink_to("bad", std::string(4096, 't')),
                                      symlink_to("bad", std::string("a\0b", 3)),
                                      device("bad", EntryType::kCharDevice, 0, 0),
                                      device("bad", EntryType::kBlockDevice, 4096, 0),
                                      device("bad", EntryType::kBlockDevice, 0, 1 << 20),
                                      with_xattr("", 1),
                                      with_xattr("user.", 1),
                                      with_xattr("user." + std::string(251, 'n'), 1),
                                      with_xattr("user.k", 65536),
                                      with_xattr(std::string("user.\0", 6), 1),
                                      with_xattr("system.posix_acl_accessx", 1),
                                      with_xattr("strange.name", 1),
                                      hard_link("bad", "bad"),
                                      whiteout("")};
  for (size_t i = 0; i < bad.size(); ++i) {
    const std::string message = build_error({bad[i]});
    if (i + 1 < bad.size()) {
      EXPECT_NE(message.find("bad"), std::string::npos) << i << message;
    }
  }
}

TEST(LayerBuilderTest, RefusesXattrsThatTogetherExceedTheFormat) {
  TestEntry entry = file("f", "x");
  for (int i = 0; i < 4; ++i)
    entry.entry.xattrs["user.k" + std::to_string(i)] = std::string(65'000, 'v');
  EXPECT_EQ(build_image({entry}).xattrs("f"), entry.entry.xattrs);
  entry.entry.xattrs["user.k4"] = std::string(3'000, 'v');
  EXPECT_NE(build_error({entry}).find("'f'"), std::string::npos);
}

TEST(LayerBuilderTest, RefusesContentOfAnotherLength) {
  for (const size_t size : {size_t{1'000}, size_t{300'000}}) {
    for (const size_t claimed : {size - 1, size + 1}) {
      TestEntry entry = file("changed", noise(size, 1));
      entry.entry.size = claimed;
      for (const Contents contents : {Contents::kStreamed, Contents::kDeferred}) {
        MemorySink sink;
        const auto layer = build(sink, {entry}, contents);
        ASSERT_FALSE(layer.has_value());
        EXPECT_NE(layer.error().to_string().find("'changed'"), std::string::npos);
      }
    }
  }
}

TEST(LayerBuilderTest, RefusesContentWhereNoneWasPromised) {
  MemorySink sink;
  LayerBuilder builder({}, sink);
  Entry entry = file("f", "").entry;
  StringStream stream("surprise");
  entry.stream = &stream;
  const Status status = builder.add(entry);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().to_string().find("'f'"), std::string::npos);
}

TEST(LayerBuilderTest, ReportsWhatTheSinkReportsAndStops) {
  for (const Contents contents : {Contents::kStreamed, Contents::kDeferred}) {
    for (size_t at = 1; at < 40; at += 3) {
      MemorySink sink;
      sink.fail_at(at);
      const auto layer = build(sink, mixed_tree(), contents);
      ASSERT_FALSE(layer.has_value());
      EXPECT_EQ(layer.error().code(), ErrorCode::kNoSpace);
    }
  }
}

/// Files of this process cannot grow beyond `bytes` while it lives: writing fails as on a full
/// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit lowered{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit old_{};
};

TEST(LayerBuilderTest, NamesTheTemporaryDirectoryWhenItIsFullWhereverThatHappens) {
  LayerBuilderOptions options;
  options.sort_memory_bytes = 16 << 10;
  options.temp_directory = "/var/tmp";
  size_t failed = 0;
  bool has_passed = false;
  for (rlim_t limit = 4096; !has_passed; limit += limit / 2) {
    MemorySink sink;
    const FileSizeLimit full(limit);
    const auto layer = build(sink, mixed_tree(), Contents::kStreamed, options);
    has_passed = layer.has_value();
    if (has_passed) break;
    ++failed;
    EXPECT_EQ(layer.error().code(), ErrorCode::kNoSpace) << layer.error().to_string();
    EXPECT_NE(layer.error().to_string().find("temporary file in '/var/tmp'"), std::string::npos);
  }
  EXPECT_GT(failed, 5U);
}

TEST(LayerBuilderTest, NamesADeferredFileThatHasGone) {
  MemorySink sink;
  LayerBuilder builder({}, sink);
  Entry entry = file("f", "content").entry;
  entry.deferred = std::make_shared<StringContents>();
  entry.deferred_key = "key";
  ASSERT_TRUE(builder.add(entry));
  EXPECT_NE(builder.finish().error().to_string().find("'key' has gone"), std::string::npos);
}

}  // namespace
}  // namespace varve::chunkstore
