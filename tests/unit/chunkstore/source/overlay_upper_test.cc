#include "chunkstore/source/overlay_upper.h"

#include <gtest/gtest.h>

namespace varve::chunkstore {
namespace {

Entry directory(std::map<std::string, std::string> xattrs) {
  Entry entry;
  entry.path = "d";
  entry.type = EntryType::kDirectory;
  entry.xattrs = std::move(xattrs);
  return entry;
}

TEST(OverlayUpperTest, ADevice00IsAWhiteoutAndOtherDevicesAreNot) {
  Entry device;
  device.path = "gone";
  device.type = EntryType::kCharDevice;
  ASSERT_TRUE(apply_upper_marks(device, false));
  EXPECT_EQ(device.type, EntryType::kWhiteout);
  EXPECT_EQ(device.path, "gone");
  Entry null;
  null.type = EntryType::kCharDevice;
  null.rdev_major = 1;
  null.rdev_minor = 3;
  ASSERT_TRUE(apply_upper_marks(null, false));
  EXPECT_EQ(null.type, EntryType::kCharDevice);
}

TEST(OverlayUpperTest, AnEmptyFileWithTheWhiteoutAttributeIsAWhiteout) {
  Entry file;
  file.path = "gone";
  file.xattrs = {{"trusted.overlay.whiteout", "y"}};
  ASSERT_TRUE(apply_upper_marks(file, false));
  EXPECT_EQ(file.type, EntryType::kWhiteout);
}

TEST(OverlayUpperTest, OnlyTheValueYIsOpaque) {
  Entry opaque = directory({{"trusted.overlay.opaque", "y"}});
  EXPECT_TRUE(apply_upper_marks(opaque, false).value());
  EXPECT_TRUE(opaque.xattrs.empty());
  Entry holds_whiteouts = directory({{"trusted.overlay.opaque", "x"}});
  EXPECT_FALSE(apply_upper_marks(holds_whiteouts, false).value());
  Entry strange = directory({{"trusted.overlay.opaque", "z"}});
  EXPECT_FALSE(apply_upper_marks(strange, false));
}

TEST(OverlayUpperTest, NotesOfTheDriverGoAndEscapedNamesAreContent) {
  Entry entry = directory({{"trusted.overlay.origin", "o"},
                           {"trusted.overlay.impure", "y"},
                           {"trusted.overlay.nlink", "U+1"},
                           {"trusted.overlay.upper", "u"},
                           {"trusted.overlay.uuid", "u"},
                           {"trusted.overlay.protattr", "+i"},
                           {"trusted.overlay.overlay.opaque", "y"},
                           {"trusted.overlay.overlay.overlay.x", "2"},
                           {"user.overlay.origin", "kept"},
                           {"user.x", "1"}});
  EXPECT_FALSE(apply_upper_marks(entry, false).value());
  EXPECT_EQ(entry.xattrs, (std::map<std::string, std::string>{{"trusted.overlay.opaque", "y"},
                                                              {"trusted.overlay.overlay.x", "2"},
                                                              {"user.overlay.origin", "kept"},
                                                              {"user.x", "1"}}));
}

TEST(OverlayUpperTest, UserMarksCountOnlyWhenTheMountUsedThem) {
  Entry entry = directory({{"user.overlay.opaque", "y"}, {"user.overlay.overlay.x", "1"}});
  EXPECT_TRUE(apply_upper_marks(entry, true).value());
  EXPECT_EQ(entry.xattrs, (std::map<std::string, std::string>{{"user.overlay.x", "1"}}));
  Entry content = directory({{"user.overlay.opaque", "y"}});
  EXPECT_FALSE(apply_upper_marks(content, false).value());
  EXPECT_EQ(content.xattrs.size(), 1u);
}

TEST(OverlayUpperTest, RedirectsAndMetacopiesAreRefused) {
  for (const char* name : {"trusted.overlay.redirect", "trusted.overlay.metacopy"}) {
    Entry entry = directory({{name, "/elsewhere"}});
    const auto result = apply_upper_marks(entry, false);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace varve::chunkstore
