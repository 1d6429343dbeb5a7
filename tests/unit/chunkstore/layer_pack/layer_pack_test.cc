// The command in-process: what a user types, what comes out.
#include "chunkstore/layer_pack/layer_pack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file_io.h"
#include "base/hash.h"
#include "chunkstore/build/publish.h"
#include "chunkstore/read/image_store.h"
#include "tests/unit/chunkstore/layer_pack/layer_pack_fixture.h"
#include "tests/unit/chunkstore/source/tar_builder.h"

namespace varve::layer_pack {
namespace {

namespace fs = std::filesystem;
using chunkstore::TarBuilder;

TEST_F(LayerPackTest, WhatIsBuiltCanBeListedReadAndExported) {
  write("tree/etc/hello", "world\n");
  fs::create_symlink("../etc/hello", path("tree/link"));
  fs::create_symlink("/etc", path("tree/absolute"));
  const std::string built = ok({"build", path("tree"), "--tag", "a:1", "--json"});
  EXPECT_EQ(json_text(built, "tag"), "a:1");
  EXPECT_NE(ok({"ls"}).find("a:1"), std::string::npos);
  EXPECT_NE(ok({"ls", "a:1"}).find("link -> ../etc/hello"), std::string::npos);
  EXPECT_NE(ok({"tree", "a:1"}).find("hello"), std::string::npos);
  EXPECT_EQ(ok({"cat", "a:1", "etc/hello"}), "world\n");
  EXPECT_EQ(ok({"cat", "a:1", "/link"}), "world\n");
  EXPECT_EQ(ok({"cat", "a:1", "/absolute/hello"}), "world\n");
  EXPECT_EQ(ok({"cat", json_text(built, "image"), "../../../etc/hello"}), "world\n");
  EXPECT_NE(ok({"inspect", "a:1"}).find(json_text(built, "image")), std::string::npos);
  ok({"export", "a:1", "--tar", path("out.tar")});
  ok({"export", "a:1", "--erofs", path("out.erofs")});
  const std::string again = ok({"build", path("out.tar"), "--json"});
  EXPECT_EQ(json_text(again, "image"), json_text(built, "image"));
  EXPECT_NE(ok({"verify"}).find("0 faults"), std::string::npos);
  EXPECT_NE(ok({"stats"}).find("a:1"), std::string::npos);
}

TEST_F(LayerPackTest, ExitStatusesSayWhatWentWrong) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a:1"});
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"frobnicate"}), 2);
  EXPECT_EQ(run({"build"}), 2);
  EXPECT_EQ(run({"build", path("tree"), "--level", "0"}), 2);
  EXPECT_EQ(run({"build", path("tree"), "--env", "NOVALUE"}), 2);
  EXPECT_EQ(run({"build", path("tree"), "--tag", "BAD NAME"}), 2);
  EXPECT_EQ(run({"gc", "--grace", "soon"}), 2);
  EXPECT_EQ(run({"export", "a:1"}), 2);
  EXPECT_EQ(run({"export", "a:1", "--tar", "x", "--erofs", "y"}), 2);
  EXPECT_EQ(run({"build", path("missing")}), 3);
  EXPECT_EQ(run({"inspect", "nothing:1"}), 3);
  EXPECT_EQ(run({"cat", "a:1", "no/such/file"}), 3);
  EXPECT_EQ(run({"cat", "a:1", "/"}), 2);
  EXPECT_EQ(run({"ls", "--store", "file://" + path("nowhere")}), 3);
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"build", "--help"}), 0);
  EXPECT_EQ(run({"--version"}), 0);
}

TEST_F(LayerPackTest, AFailedBuildPublishesNothingAndNamesThePath) {
  write("bad.tar", TarBuilder().member({.name = "good"}, "x").member({.name = "../bad"}).bytes());
  EXPECT_EQ(run({"build", path("bad.tar"), "--tag", "a:1"}), 2);
  EXPECT_NE(err_.find("'../bad'"), std::string::npos) << err_;
  EXPECT_NE(err_.find("bad.tar"), std::string::npos) << err_;
  EXPECT_EQ(published_count(), 0u);
  EXPECT_NE(ok({"verify"}).find("0 faults"), std::string::npos);
}

TEST_F(LayerPackTest, ALaterLayerThatFailsPublishesNoneOfTheEarlierOnes) {
  const std::string good = TarBuilder().member({.name = "f"}, "x").bytes();
  const std::string bad = TarBuilder().member({.name = "g"}, "y").open_bytes();
  const auto digest = [](const std::string& text) { return sha256(as_bytes(text)).hex(); };
  const std::string config = R"({"rootfs":{"diff_ids":["sha256:)" + digest(good) + R"(","sha256:)" +
                             digest(bad) + R"("]}})";
  write("image.tar",
        TarBuilder()
            .member({.name = "manifest.json"}, R"([{"Config":"c.json","Layers":["good","bad"]}])")
            .member({.name = "c.json"}, config)
            .member({.name = "good"}, good)
            .member({.name = "bad"}, bad)
            .bytes());
  EXPECT_EQ(run({"build", path("image.tar"), "--tag", "a:1"}), 2);
  EXPECT_NE(err_.find("truncated"), std::string::npos) << err_;
  EXPECT_EQ(published_count(), 0u);
}

TEST_F(LayerPackTest, ABuildThatNeedsNoTemporaryFileDoesWithoutTheirDirectory) {
  write("tree/f", "x");
  const ScopedVariable nowhere("TMPDIR", "/proc/nope");
  ok({"build", path("tree"), "--tag", "a:1"});
}

TEST_F(LayerPackTest, WhatAnImageCannotHoldIsRefusedBeforeItsLayersArePublished) {
  write("tree/f", "x");
  EXPECT_EQ(run({"build", path("tree"), "--env", "BAD=\xff"}), 2);
  EXPECT_NE(err_.find("BAD"), std::string::npos) << err_;
  EXPECT_EQ(published_count(), 0u);
}

TEST_F(LayerPackTest, TheDirectoryOfTemporaryFilesIsTheOneThatWasAskedFor) {
  write("tree/f", "x");
  write("upper/g", "y");
  ok({"build", path("tree"), "--tag", "a:1"});
  const std::vector<std::vector<std::string>> commands = {
      {"build", path("upper"), "--tag", "a:0"},
      {"build", path("upper"), "--base", "a:1", "--tag", "a:2"},
      {"diff", path("upper"), "--base", "a:1", "--tag", "a:3"},
      {"flatten", "a:2", "--tag", "a:4"},
      {"export", "a:2", "--erofs", path("out.erofs")},
      {"export", "a:2", "--tar", path("out.tar")}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--temp-dir", "/proc/nope"});
    EXPECT_EQ(run(command), 3) << command.front();
    EXPECT_NE(err_.find("--temp-dir: opening '/proc/nope'"), std::string::npos) << err_;
    const ScopedVariable nowhere("TMPDIR", "/proc/elsewhere");
    command.back() = dir_.path();
    ok(command);
  }
}

TEST_F(LayerPackTest, LayersBelowAnOpaqueRootAreLeftOutOfTheImage) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a:1"});
  const auto layer = TarBuilder().member({.name = ".wh..wh..opq"}).member({.name = "g"}).bytes();
  const std::string config =
      R"({"rootfs":{"diff_ids":["sha256:)" + sha256(as_bytes(layer)).hex() + R"("]}})";
  write("image.tar", TarBuilder()
                         .member({.name = "manifest.json"}, R"([{"Config":"c","Layers":["l"]}])")
                         .member({.name = "c"}, config)
                         .member({.name = "l"}, layer)
                         .bytes());
  ok({"build", path("image.tar"), "--base", "a:1", "--tag", "a:2"});
  EXPECT_NE(ok({"inspect", "a:2"}).find("layer"), std::string::npos);
  EXPECT_EQ(out_.find("layer"), out_.rfind("layer")) << out_;
}

TEST_F(LayerPackTest, WithoutAUsableChunkIndexABuildSaysSoAndGoesOn) {
  write("tree/f", "x");
  const std::string image = json_text(ok({"build", path("tree"), "--json"}), "image");
  EXPECT_EQ(err_.find("index"), std::string::npos) << err_;
  write("file", "");
  for (const std::string& cache : {std::string("/proc/nope"), path("file")}) {
    const ScopedVariable unusable("XDG_CACHE_HOME", cache.c_str());
    EXPECT_EQ(json_text(ok({"build", path("tree"), "--json"}), "image"), image);
    const size_t at = err_.find("without an index");
    EXPECT_NE(at, std::string::npos) << err_;
    EXPECT_EQ(err_.rfind("without an index"), at) << err_;
    EXPECT_NE(err_.find(cache), std::string::npos) << err_;
  }
  EXPECT_NE(ok({"verify"}).find("0 faults"), std::string::npos);
}

TEST_F(LayerPackTest, ImpliedDirectoriesTakeTheAttributesThatTheyHaveBelow) {
  write(
      "base.tar",
      TarBuilder().member({.name = "a", .type = '5', .mode = "0000700", .uid = "0000005"}).bytes());
  ok({"build", path("base.tar"), "--tag", "base"});
  write("upper.tar", TarBuilder().member({.name = "a/b/c"}, "x").bytes());
  ok({"build", path("upper.tar"), "--base", "base", "--tag", "on-base"});
  EXPECT_NE(ok({"ls", "on-base"}).find("drwx------   3     5     0"), std::string::npos) << out_;
  EXPECT_NE(ok({"ls", "on-base", "a"}).find("drwxr-xr-x   2     0     0"), std::string::npos)
      << out_;
  ok({"build", path("upper.tar"), "--tag", "alone"});
  EXPECT_NE(ok({"ls", "alone"}).find("drwxr-xr-x   3     0     0"), std::string::npos) << out_;
}

TEST_F(LayerPackTest, LayersOfOneImageImplyDirectoriesOfEachOtherAndTheConfigurationComesAlong) {
  const std::string lower =
      TarBuilder()
          .member({.name = "a", .type = '5', .mode = "0000700", .uid = "0000005"})
          .member({.name = "gone", .type = '5', .mode = "0000700"})
          .bytes();
  const std::string middle = TarBuilder().member({.name = ".wh.gone"}).bytes();
  const std::string upper =
      TarBuilder().member({.name = "a/b/c"}, "x").member({.name = "gone/d"}, "y").bytes();
  const auto digest = [](const std::string& text) {
    return "\"sha256:" + sha256(as_bytes(text)).hex() + "\"";
  };
  const std::string config = R"({"config":{"Cmd":["run","it"],"Env":["A=1"],"User":"7"},)"
                             R"("rootfs":{"diff_ids":[)" +
                             digest(lower) + "," + digest(middle) + "," + digest(upper) + "]}}";
  write("image.tar",
        TarBuilder()
            .member({.name = "manifest.json"}, R"([{"Config":"c.json","Layers":["1","2","3"]}])")
            .member({.name = "c.json"}, config)
            .member({.name = "1"}, lower)
            .member({.name = "2"}, middle)
            .member({.name = "3"}, upper)
            .bytes());
  ok({"build", path("image.tar"), "--tag", "a"});
  const std::string listing = ok({"ls", "a"});
  EXPECT_NE(listing.find("drwx------   3     5     0"), std::string::npos) << listing;
  EXPECT_NE(listing.find("drwxr-xr-x   2     0     0"), std::string::npos) << listing;
  const std::string inspected = ok({"inspect", "a", "--json"});
  EXPECT_NE(inspected.find(R"("cmd":["run","it"])"), std::string::npos) << inspected;
  EXPECT_NE(inspected.find(R"("env":["A=1"])"), std::string::npos) << inspected;
  EXPECT_NE(inspected.find(R"("user":"7")"), std::string::npos) << inspected;
}

TEST_F(LayerPackTest, EnvironmentAndConfigurationOfTheBaseAreKeptAndChanged) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a", "--env", "A=1", "--env", "B=2"});
  ok({"build", path("tree"), "--tag", "b", "--base", "a", "--env", "A=3", "--env", "C=4"});
  EXPECT_NE(ok({"inspect", "b", "--json"}).find(R"("env":["A=3","B=2","C=4"])"), std::string::npos)
      << out_;
  ok({"compose", "a", "b", "--tag", "c"});
  EXPECT_NE(ok({"inspect", "c", "--json"}).find(R"("env":["A=3","B=2","C=4"])"), std::string::npos)
      << out_;
}

TEST_F(LayerPackTest, AnnotationsOfAnImageAreCarriedOver) {
  write("tree/f", "x");
  write("other/g", "y");
  ok({"build", path("tree"), "--tag", "plain"});
  {
    // layer-pack sets none itself; other writers of stores may.
    const std::shared_ptr<chunkstore::Store> store =
        chunkstore::open_store("file://" + path("store"), /*create=*/false).value();
    const auto lease = chunkstore::Lease::take(store).value();
    chunkstore::Image image =
        chunkstore::ImageStore(store).resolve("plain", kNoDeadline).value().image;
    image.annotations = {{"a", "1"}, {"b", "2"}};
    const Digest lower = chunkstore::publish_image(*store, *lease, image).value();
    ASSERT_TRUE(chunkstore::publish_ref(*store, *lease, {"lower", "latest"}, lower));
    image.annotations = {{"a", "3"}};
    const Digest upper = chunkstore::publish_image(*store, *lease, image).value();
    ASSERT_TRUE(chunkstore::publish_ref(*store, *lease, {"upper", "latest"}, upper));
  }
  const auto annotations = [&](const std::string& tag) {
    const auto store = chunkstore::open_store("file://" + path("store"), /*create=*/false).value();
    return chunkstore::ImageStore(store).resolve(tag, kNoDeadline).value().image.annotations;
  };
  const std::map<std::string, std::string> lower{{"a", "1"}, {"b", "2"}};
  ok({"build", path("other"), "--base", "lower", "--tag", "built"});
  EXPECT_EQ(annotations("built"), lower);
  ok({"flatten", "built", "--tag", "flat"});
  EXPECT_EQ(annotations("flat"), lower);
  ok({"compose", "lower", "upper", "--tag", "both"});
  EXPECT_EQ(annotations("both"), (std::map<std::string, std::string>{{"a", "3"}, {"b", "2"}}));
}

TEST_F(LayerPackTest, FlattenMakesOneLayerThatShowsTheSameTree) {
  write("lower.tar",
        TarBuilder().member({.name = "d/a"}, "a").member({.name = "d/b"}, "b").bytes());
  write("upper.tar",
        TarBuilder().member({.name = "d/b"}, "new").member({.name = "e"}, "e").bytes());
  ok({"build", path("lower.tar"), "--tag", "lower"});
  ok({"build", path("upper.tar"), "--tag", "upper"});
  ok({"compose", "lower", "upper", "--tag", "both"});
  const std::string flat = ok({"flatten", "both", "--tag", "flat", "--json"});
  EXPECT_NE(flat.find(R"("new_raw_bytes":)"), std::string::npos);
  ok({"export", "both", "--tar", path("both.tar")});
  ok({"export", "flat", "--tar", path("flat.tar")});
  EXPECT_EQ(read_file(path("both.tar"), 1 << 20).value(),
            read_file(path("flat.tar"), 1 << 20).value());
  EXPECT_EQ(ok({"cat", "flat", "d/b"}), "new");
  ok({"export", "both", "--erofs", path("both.erofs")});
  ok({"export", "flat", "--erofs", path("flat.erofs")});
  EXPECT_EQ(read_file(path("both.erofs"), 1 << 24).value(),
            read_file(path("flat.erofs"), 1 << 24).value());
}

TEST_F(LayerPackTest, MemoryAndLevelAndJobsDoNotChangeTheLayer) {
  for (int i = 0; i < 2000; ++i) {
    write("tree/" + std::to_string(i % 50) + "/" + std::to_string(i),
          std::string(1000, 'a' + i % 26));
  }
  const std::string first = json_text(ok({"build", path("tree"), "--json"}), "image");
  EXPECT_EQ(json_text(ok({"build", path("tree"), "--json", "--level", "9"}), "image"), first);
  EXPECT_EQ(json_text(ok({"build", path("tree"), "--json", "--jobs", "1"}), "image"), first);
  EXPECT_EQ(json_text(ok({"build", path("tree"), "--json", "--memory-max", "128M"}), "image"),
            first);
  EXPECT_EQ(run({"build", path("tree"), "--memory-max", "1M"}), 2);
}

TEST_F(LayerPackTest, GarbageIsCollectedAndNamedImagesStay) {
  write("one/f", std::string(100'000, '1'));
  write("two/f", std::string(100'000, '2'));
  ok({"build", path("one"), "--tag", "one"});
  ok({"build", path("two")});
  EXPECT_NE(ok({"gc", "--grace", "0", "--dry-run"}).find("condemned"), std::string::npos);
  EXPECT_NE(ok({"stats", "--json"}).find(R"("layers":2)"), std::string::npos) << out_;
  ok({"gc", "--grace", "0"});
  EXPECT_NE(ok({"stats", "--json"}).find(R"("layers":1)"), std::string::npos) << out_;
  EXPECT_EQ(ok({"cat", "one", "f"}), std::string(100'000, '1'));
  EXPECT_NE(ok({"verify"}).find("0 faults"), std::string::npos);
}

TEST_F(LayerPackTest, VerifyFindsADamagedPackAndSaysSo) {
  write("tree/f", std::string(100'000, 'x') + "y");
  ok({"build", path("tree"), "--tag", "a"});
  for (const auto& entry : fs::recursive_directory_iterator(path("store/packs"))) {
    if (!entry.is_regular_file()) continue;
    const UniqueFd fd = open_file(entry.path(), O_RDWR).value();
    ASSERT_TRUE(pwrite_all(fd.get(), 20, as_bytes("damage")));
  }
  EXPECT_EQ(run({"verify"}), 6);
  EXPECT_NE(out_.find("packs/"), std::string::npos) << out_;
  EXPECT_EQ(run({"cat", "a", "f"}), 6) << err_;
}

TEST_F(LayerPackTest, NothingHostileReachesTheTerminal) {
  // ESC ] 0 ; … BEL sets a title, ESC [ and U+009B begin sequences.
  const std::string evil =
      "\x1b]0;title\x07\x1b[31m\xc2\x9b"
      "31m\r\t\x7f\xff";
  write("tree/" + evil, "x");
  write("tree/" + evil + ".d/f", "x");
  ASSERT_EQ(::symlink(evil.c_str(), path("tree/link").c_str()), 0);
  const std::string variable =
      "A=\x1b[31m\xc2\x9b"
      "31m\x7f";
  ok({"build", path("tree"), "--tag", "a", "--env", variable});
  for (const char* kind : {"refs", "layers", "images", "placements", "packs", "leases"}) {
    write(std::string("store/") + kind + "/" + evil, evil);
    write(std::string("store/") + kind + "/" + evil + ".d/" + evil, evil);
  }
  const auto is_hostile = [](const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if ((byte < 0x20 && byte != '\n') || byte == 0x7f || byte == 0xff) return true;
      if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
        return true;
    }
    return false;
  };
  const std::vector<std::vector<std::string>> commands{{"ls"},
                                                       {"ls", "a"},
                                                       {"ls", "a", evil + ".d"},
                                                       {"tree", "a"},
                                                       {"inspect", "a"},
                                                       {"cat", "a", "link/" + evil},
                                                       {"verify"},
                                                       {"stats"},
                                                       {"gc", "--dry-run"},
                                                       {"ls", evil},
                                                       {"cat", "a", evil + evil},
                                                       {"build", path(evil)},
                                                       {"compose", "--tag", "b", evil},
                                                       {"inspect", evil},
                                                       {"flatten", evil}};
  for (const auto& command : commands) {
    run(command);
    EXPECT_FALSE(is_hostile(out_)) << command[0] << ": " << out_;
    EXPECT_FALSE(is_hostile(err_)) << command[0] << ": " << err_;
  }
  // JSON has its own escapes, but has to be UTF-8.
  for (const char* command : {"verify", "ls", "stats", "gc"}) {
    run({command, "--json"});
    EXPECT_EQ(out_.find('\xff'), std::string::npos) << out_;
  }
}

TEST_F(LayerPackTest, AFullDiskForTheOutputIsAnError) {
  write("tree/f", std::string(100'000, 'x'));
  ok({"build", path("tree"), "--tag", "a"});
  EXPECT_EQ(run({"export", "a", "--tar", "/dev/full"}), 10) << err_;
  EXPECT_EQ(run({"export", "a", "--erofs", "/dev/full"}), 10) << err_;
}

TEST_F(LayerPackTest, WhatIsWrongWithACommandLineIsNamed) {
  write("tree/f", "x");
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& text) {
    EXPECT_EQ(run(arguments), 2);
    EXPECT_NE(err_.find(text), std::string::npos) << err_;
  };
  expect({"bogus"}, "no command 'bogus'");
  expect({"bogus", "--json"}, "no command 'bogus'");
  expect({"build", path("tree"), "--source-type", "foo"}, "'foo' is not auto, directory, tar,");
  expect({"build", path("tree"), "--source-type", "2"}, "'2' is not auto");
  expect({"build", path("tree"), "--level", "20"}, "--level: Value 20 not in range 1 to 19");
  expect({"build", path("tree"), "--jobs", "0"}, "--jobs: Value 0 not in range 1 to 1024");
  for (const char* size : {"127M", "1025T", "128Mx", "99999999999T", "-1", "", "128MM"}) {
    expect({"build", path("tree"), "--memory-max", size},
           "--memory-max: '" + std::string(size) + "' is not a size from 128M to 1024T");
  }
  for (const char* grace : {"soon", "36501d", "-1"}) {
    expect({"gc", std::string("--grace=") + grace},
           "--grace: '" + std::string(grace) + "' is not a duration from 0 to 36500d");
  }
  expect({"ls", "--store", ""}, "'' is neither an absolute path nor a file:// URL");
  ok({"build", path("tree"), "--source-type", "directory"});
}

TEST_F(LayerPackTest, TreeNamesAFileAsLsDoes) {
  write("tree/d/f", "x");
  ok({"build", path("tree"), "--tag", "a"});
  for (const std::vector<std::string>& rest : {std::vector<std::string>{}, {"--json"}}) {
    std::vector<std::string> ls{"ls", "a", "d/f"}, tree{"tree", "a", "d/f"};
    ls.insert(ls.end(), rest.begin(), rest.end());
    tree.insert(tree.end(), rest.begin(), rest.end());
    EXPECT_EQ(ok(tree), ok(ls));
    EXPECT_NE(out_.find("d/f"), std::string::npos) << out_;
  }
}

TEST_F(LayerPackTest, ADamagedNameIsNamedAndTheOthersAreListed) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a:1"});
  ok({"build", path("tree"), "--tag", "b:1"});
  ok({"build", path("tree"), "--tag", "c:1"});
  write("store/refs/b:1", "damage");
  for (const char* command : {"ls", "stats"}) {
    EXPECT_EQ(run({command}), 6);
    EXPECT_NE(out_.find("a:1"), std::string::npos) << out_;
    EXPECT_NE(out_.find("c:1"), std::string::npos) << out_;
    EXPECT_NE(err_.find("b:1"), std::string::npos) << err_;
  }
  ok({"inspect", "a:1"});
}

TEST_F(LayerPackTest, AnExportToStandardOutputIsAllThatIsWrittenThere) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a"});
  for (const char* flag : {"--tar", "--erofs"}) {
    ok({"export", "a", flag, path("file")});
    const UniqueFd saved(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    const UniqueFd piped = open_file(path("piped"), O_WRONLY | O_CREAT | O_TRUNC).value();
    ::dup2(piped.get(), STDOUT_FILENO);
    const std::string text = ok({"export", "a", flag, "-"});
    ::dup2(saved.get(), STDOUT_FILENO);
    EXPECT_EQ(text, "");
    EXPECT_EQ(read_file(path("piped"), 1 << 30).value(), read_file(path("file"), 1 << 30).value());
  }
}

TEST_F(LayerPackTest, AnImageArchiveMayBeginWithItsRoot) {
  const std::string layer = TarBuilder().member({.name = "inside"}, "x").bytes();
  const std::string config =
      R"({"architecture":"amd64","os":"linux","rootfs":{"diff_ids":["sha256:)" +
      sha256(as_bytes(layer)).hex() + R"("]}})";
  write("image.tar", TarBuilder()
                         .member({.name = "./", .type = '5'})
                         .member({.name = "./manifest.json"}, R"([{"Config":"c","Layers":["l"]}])")
                         .member({.name = "./c"}, config)
                         .member({.name = "./l"}, layer)
                         .bytes());
  ok({"build", path("image.tar"), "--tag", "a:1"});
  EXPECT_NE(ok({"ls", "a:1"}).find("inside"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("manifest.json"), std::string::npos) << out_;
  EXPECT_EQ(run({"build", path("image.tar"), "--platform", "linux/arm64"}), 3);
  EXPECT_NE(err_.find("there is 'linux/amd64'"), std::string::npos) << err_;
  write("only-root.tar", TarBuilder().member({.name = "./", .type = '5'}).bytes());
  ok({"build", path("only-root.tar")});
}

TEST_F(LayerPackTest, ASourceTypeOverridesWhatItLooksLike) {
  write("tree/oci-layout", "{}");
  write("tree/index.json", "{}");
  EXPECT_EQ(run({"build", path("tree")}), 3) << "taken for an empty OCI layout: " << err_;
  ok({"build", path("tree"), "--source-type", "directory", "--tag", "a"});
  EXPECT_EQ(ok({"cat", "a", "index.json"}), "{}");
  write("t.tar", TarBuilder().member({.name = "manifest.json"}, "[]").bytes());
  EXPECT_NE(run({"build", path("t.tar")}), 0);
  ok({"build", path("t.tar"), "--source-type", "tar", "--tag", "b"});
  EXPECT_EQ(ok({"cat", "b", "manifest.json"}), "[]");
}

}  // namespace
}  // namespace varve::layer_pack
