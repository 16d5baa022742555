// Tests of files of torch.save, which the tests assemble byte by byte: tensors of every dtype and layout, and refusal
// of truncated, damaged and malicious files.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "fixtures/folder.h"
#include "fixtures/status.h"
#include "fixtures/zip_bytes.h"
#include "io/pickle.h"
#include "io/tensor_files.h"

using namespace mh;
using namespace mh::io;

namespace {

const auto little_endian = bytes_of_number;
using Numbers = std::vector<uint64_t>;

std::string text(const std::string& s) { return "X" + little_endian(s.size(), 4) + s; }
std::string integer(uint64_t i) {
  return i < 256 ? "K" + little_endian(i, 1) : i < 65536 ? "M" + little_endian(i, 2) : "\x8a\x08" + little_endian(i, 8);
}
std::string tuple(const Numbers& numbers) {
  std::string out = "(";
  for (uint64_t i : numbers) out += integer(i);
  return out + "t";
}
const std::string kOrderedDict = "ccollections\nOrderedDict\n)R";
std::string storage_of(const std::string& type, const std::string& key, uint64_t size) {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") + integer(size) + "tQ";
}
std::string tensor(const std::string& storage, uint64_t offset, const Numbers& shape, const Numbers& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset) + tuple(shape) + tuple(strides) + "\x89" +
         kOrderedDict + "tR";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "\x80\x02" + kOrderedDict + "(";
  for (const auto& [name, pickle] : entries) out += text(name) + pickle;
  return out + "u.";
}

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

std::vector<StoredTensor> read(const std::string& pickle) {
  return read_state_dict({reinterpret_cast<const uint8_t*>(pickle.data()), pickle.size()}, "test");
}

// Returns the error message if `pickle` is refused, or "" if it is accepted.
std::string error_of(const std::string& pickle) {
  try {
    read(pickle);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

const std::string kTensor = tensor(storage_of("FloatStorage", "0", 6), 0, {2, 3}, {3, 1});

struct SavedFiles {
  Folder folder;
  std::string save(const std::string& bytes, const std::string& name = "pytorch_model.bin") const {
    write_file_atomically(folder.file(name), bytes);
    return folder.file(name);
  }
  TensorFiles open(const std::string& bytes) const {
    TensorFiles files;
    const std::string path = save(bytes);
    files.add(path, open_torch_file(path));
    return files;
  }
};

const std::vector<float> kValues{1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("crc32 reproduces published checksums", "[torch-file]") {
  const std::string digits = "123456789";
  auto checksum = [](const std::string& s) { return crc32({reinterpret_cast<const uint8_t*>(s.data()), s.size()}); };
  CHECK(checksum(digits) == 0xCBF43926);
  CHECK(checksum("") == 0);
  CHECK(checksum("The quick brown fox jumps over the lazy dog") == 0x414FA339);
}

TEST_CASE("torch.save files are read with any dtype, strides, storage offsets and shared storages", "[torch-file]") {
  const std::string pickle = dict({
      {"plain", kTensor},
      {"transposed", tensor(storage_of("FloatStorage", "0", 6), 0, {3, 2}, {1, 3})},
      {"row", tensor(storage_of("FloatStorage", "0", 6), 3, {3}, {1})},
      {"scalar", tensor(storage_of("FloatStorage", "0", 6), 5, {}, {})},
      {"repeated", tensor(storage_of("FloatStorage", "0", 6), 1, {2, 2}, {0, 1})},
      {"empty", tensor(storage_of("FloatStorage", "0", 6), 0, {0, 4}, {4, 1})},
      {"parameter", "ctorch._utils\n_rebuild_parameter\n(" + kTensor + "\x88" + kOrderedDict + "tR"},
      {"half", tensor(storage_of("HalfStorage", "1", 6), 0, {6}, {1})},
      {"brain", tensor(storage_of("BFloat16Storage", "2", 2), 0, {2}, {1})},
      {"double", tensor(storage_of("DoubleStorage", "3", 1), 0, {1}, {1})},
      {"one-double", tensor(storage_of("DoubleStorage", "5", 1), 0, {1}, {1})},
      {"one-half", tensor(storage_of("HalfStorage", "1", 6), 0, {1}, {1})},
      {"positions", tensor(storage_of("LongStorage", "4", 2), 0, {1, 2}, {2, 1})},
  });
  const std::vector<std::pair<std::string, std::string>> entries{
      {"model/data.pkl", pickle},
      {"model/byteorder", "little"},
      {"model/data/0", bytes_of(kValues)},
      {"model/data/1", bytes_of<uint16_t>({0x3C00, 0xC000, 0x0001, 0x7C00, 0x8000, 0x3555})},
      {"model/data/2", bytes_of<uint16_t>({0x3F80, 0xC049})},
      {"model/data/3", bytes_of<double>({0.1})},
      {"model/data/4", bytes_of<int64_t>({0, 1})},
      {"model/data/5", bytes_of<double>({1})},
      {"model/version", "3\n"}};
  const SavedFiles saved_files;
  for (const ZipOptions& options : {ZipOptions{}, ZipOptions{.is_zip64 = true}, ZipOptions{.has_checksums = false}}) {
    const TensorFiles files = saved_files.open(zip_of(entries, options));
    CHECK(files.entries().size() == 13);
    CHECK(files.read_fp32("plain") == kValues);
    CHECK(files.read_fp32("parameter") == kValues);
    CHECK(files.read_fp32("transposed") == std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(files.read_fp32("row") == std::vector<float>{4, 5, 6});
    CHECK(files.read_fp32("scalar") == std::vector<float>{6});
    CHECK(files.read_fp32("repeated") == std::vector<float>{2, 3, 2, 3});
    CHECK(files.read_fp32("empty").empty());
    CHECK(files.read_fp32("half") == std::vector<float>{1, -2, 0x1p-24F, INFINITY, -0.0F, 0x1.554p-2F});
    CHECK(std::signbit(files.read_fp32("half")[4]));
    CHECK(files.read_fp32("brain") == std::vector<float>{1, -3.140625F});
    CHECK(files.read_fp32("double") == std::vector<float>{0.1F});
    // A reader converts any range of elements, before and after the release of the mapped memory.
    for (const char* name : {"plain", "transposed"}) {
      const std::vector<float> elements = files.read_fp32(name);
      const TensorFiles::Reader reader = files.open(name);
      for (int64_t first = 0; first < 6; ++first) {
        std::vector<float> range(static_cast<size_t>(6 - first));
        reader.read(first, 6 - first, range.data());
        CHECK(range == std::vector<float>(elements.begin() + first, elements.end()));
        if (first == 2) reader.finish();
      }
    }
    CHECK(files.are_equal("plain", "parameter"));
    CHECK(files.are_equal("transposed", "transposed"));
    CHECK_FALSE(files.are_equal("plain", "transposed"));
    CHECK_FALSE(files.are_equal("plain", "row"));
    CHECK_FALSE(files.are_equal("half", "row"));
    CHECK(files.are_equal("one-double", "one-half"));
    CHECK_FALSE(files.are_equal("double", "one-half"));
    CHECK(files.find("positions")->info.shape == std::vector<int64_t>{1, 2});
    CHECK(files.find("nothing") == nullptr);
    CHECK_THROWS_WITH(files.read_fp32("positions"), Catch::Contains("positions") && Catch::Contains("I64"));
  }
}

TEST_CASE("a tensor of a torch.save file that was shortened while it was mapped is refused", "[torch-file]") {
  const std::vector<std::pair<std::string, std::string>> entries{{"model/data.pkl", dict({{"a", kTensor}})},
                                                                 {"model/data/0", bytes_of(kValues)}};
  const SavedFiles saved_files;
  for (const bool has_checksums : {true, false}) {
    const TensorFiles files = saved_files.open(zip_of(entries, {.has_checksums = has_checksums}));
    CHECK(files.read_fp32("a") == kValues);
    const std::string path = saved_files.folder.file("pytorch_model.bin");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);  // within the last page, so no SIGBUS
    CHECK(status_of([&] { files.read_fp32("a"); }) == 3);
    CHECK(status_of([&] { files.are_equal("a", "a"); }) == 3);
    CHECK_THROWS_WITH(files.read_fp32("a"), Catch::Contains("another program has shortened"));
  }
}

TEST_CASE("a pickle with references to its memo and with attributes of its dict is read", "[torch-file]") {
  // Tensor `b` takes its storage and its rebuild function from the memo; the dict has the attribute _metadata, as a
  // dict from state_dict() does.
  std::string pickle = "\x80\x02" + kOrderedDict + "q\x01(" + text("a");
  pickle += "ctorch._utils\n_rebuild_tensor_v2\nr" + little_endian(300, 4) + "(" + storage_of("FloatStorage", "0", 6) +
            "q\x02" + integer(0) + tuple({6}) + tuple({1}) + "\x89" + kOrderedDict + "tR";
  pickle += text("b") + "j" + little_endian(300, 4) + "(h\x02" + integer(2) + integer(2) + "\x85" + integer(1) +
            "\x85\x89" + kOrderedDict + "tR" + "u";
  pickle += "}" + text("_metadata") + kOrderedDict + text("") + "}" + text("version") + integer(1) + "sssb.";
  const auto tensors = read(pickle);
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].info.name == "a");
  CHECK(tensors[1].info.name == "b");
  CHECK(tensors[1].offset == 2);
  CHECK(tensors[1].storage_key == "0");
  CHECK(read("\x80\x02}.").empty());
}

TEST_CASE("a pickle whose values would exceed the memory limit is refused", "[torch-file]") {
  // NONE, EMPTY_DICT and EMPTY_TUPLE create a value with an opcode of one byte, BINGET repeats a value with two bytes,
  // and LONG_BINPUT fills the memo.
  const auto repeat = [](const std::string& opcodes, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += opcodes;
    return out;
  };
  std::string memo = "N";
  for (uint64_t i = 0; i < 1'000'000; ++i) memo += "r" + little_endian(i, 4);
  for (const std::string& opcodes :
       {repeat("N", 2'000'000), repeat("}", 2'000'000), repeat(")", 2'000'000), memo,
        text(std::string(1000, 'a')) + "q" + little_endian(0, 1) + repeat("h" + little_endian(0, 1), 2'000'000)})
    CHECK_THAT(error_of("\x80\x02" + opcodes + "."), Catch::Contains("values of at most 50331648 bytes"));
  // A text in the memo is shared, not copied.
  CHECK_THAT(error_of("\x80\x02" + text(std::string(100'000, 'a')) + "q" + little_endian(0, 1) +
                      repeat("h" + little_endian(0, 1), 100'000) + "."),
             Catch::Contains("a dict"));
}

TEST_CASE("a pickle that names a function other than PyTorch's rebuild functions is refused", "[torch-file]") {
  const std::string os_system_error = error_of(
      "\x80\x02"
      "cos\nsystem\n" +
      text("touch evil") + "\x85R.");
  CHECK_THAT(os_system_error, Catch::Contains("'os.system'") && Catch::Contains("byte 2") &&
                                  Catch::Contains("does not call") && Catch::Contains("safe_serialization=True"));
  CHECK_THAT(error_of("\x80\x02"
                      "cbuiltins\neval\n."),
             Catch::Contains("'builtins.eval'"));
  CHECK_THAT(error_of("\x80\x02"
                      "ctorch\nload\n."),
             Catch::Contains("'torch.load'"));
  CHECK_THAT(error_of("\x80\x02"
                      "c\x1b[31m\nx\n."),
             Catch::Contains("'?[31m.x'"));
  // Other opcodes that create objects: INST; STACK_GLOBAL with SHORT_BINUNICODE; NEWOBJ.
  CHECK_THAT(error_of("\x80\x02(ios\nsystem\n."), Catch::Contains("0x69"));
  CHECK_THAT(error_of("\x80\x02\x8c\x02os\x8c\x06system\x93."), Catch::Contains("0x8c"));
  CHECK_THAT(error_of("\x80\x02\x81."), Catch::Contains("0x81"));
  CHECK_THAT(error_of("\x80\x04."), Catch::Contains("protocol 2") && Catch::Contains("4"));
  CHECK_THAT(error_of("\x80\x02"
                      "ctorch\nFloatStorage\n)R."),
             Catch::Contains("torch.FloatStorage"));
}

TEST_CASE("a pickle that is not a state dict, is truncated at any byte or is damaged is refused", "[torch-file]") {
  CHECK_THAT(error_of("\x80\x02K\x01."), Catch::Contains("a dict") && Catch::Contains("a number"));
  CHECK_THAT(error_of(dict({{"epoch", "K\x03"}})), Catch::Contains("a tensor under the key epoch"));
  CHECK_THAT(error_of(dict({{"model", "}"}})), Catch::Contains("a dict"));
  CHECK_THAT(error_of(dict({{"a", kTensor}, {"a", kTensor}})), Catch::Contains("a twice"));
  CHECK_THAT(error_of("\x80\x02}K\x01" + kTensor + "s."), Catch::Contains("names"));
  const std::string storage = storage_of("FloatStorage", "0", 6);
  for (const auto& [offset, shape, strides] : std::vector<std::tuple<uint64_t, Numbers, Numbers>>{
           {1, {2, 3}, {3, 1}}, {0, {2, 4}, {3, 1}}, {0, {7}, {1}}, {6, {}, {}}, {0, {2}, {uint64_t{1} << 62}}})
    CHECK_THAT(error_of(dict({{"a", tensor(storage, offset, shape, strides)}})), Catch::Contains("beyond"));
  const uint64_t huge = uint64_t{1} << 40;
  CHECK_THAT(error_of(dict({{"a", tensor(storage, 0, {huge, huge}, {0, 0})}})), Catch::Contains("beyond"));
  CHECK_THAT(error_of(dict({{"a", tensor(storage, 0, {2, 3}, {3})}})), Catch::Contains("one stride per dimension"));
  CHECK_THAT(error_of(dict({{"a", tensor(storage, 0, Numbers(65, 1), Numbers(65, 1))}})),
             Catch::Contains("64 dimensions"));
  CHECK_THAT(error_of(dict({{"a", tensor(storage, 0, {~uint64_t{0}}, {1})}})), Catch::Contains("-1"));
  CHECK_THAT(error_of(dict({{"a", tensor(storage_of("ComplexFloatStorage", "0", 6), 0, {1}, {1})}})),
             Catch::Contains("torch.ComplexFloatStorage"));
  CHECK_THAT(error_of(dict({{"a", tensor("K\x01", 0, {1}, {1})}})), Catch::Contains("a storage"));
  const std::string dict_as_storage_type =
      "(" + text("storage") + "ccollections\nOrderedDict\n" + text("0") + text("cpu") + integer(6) + "tQ";
  CHECK_THAT(error_of("\x80\x02" + dict_as_storage_type + "."), Catch::Contains("a storage type"));
  CHECK_THAT(error_of("\x80\x02" + storage_of("FloatStorage", "0", ~uint64_t{0}) + "."),
             Catch::Contains("expected a storage size of at least 0; found -1"));
  CHECK_THAT(error_of("\x80\x02K\x01}b."), Catch::Contains("a dict with attributes"));
  CHECK_THAT(error_of("\x80\x02" + std::string("ccollections\nOrderedDict\n}") + "\x85R."),
             Catch::Contains("expected a call of OrderedDict without arguments; found 1 argument"));

  const std::string valid_pickle = dict({{"a", kTensor}});
  REQUIRE(read(valid_pickle).size() == 1);
  for (size_t size = 0; size < valid_pickle.size(); ++size) {
    INFO(size);
    CHECK_THAT(error_of(valid_pickle.substr(0, size)), Catch::Contains("truncated"));
  }
  const std::string invalid_text("X\x01\x00\x00\x00\xff.", 7);  // a text of one byte that is not UTF-8
  for (const std::string& invalid_pickle : std::vector<std::string>{"u.", "s.", "R.", "b.", ".", "h\x01.", "q\x01.",
                                                                    "(u.", "\x85.", "\x87.", "Q.", "}(K\x01u.",
                                                                    "\x8a\x09"
                                                                    "123456789.",
                                                                    invalid_text})
    CHECK(status_of([&] { read("\x80\x02" + invalid_pickle); }) == 3);
  // A pickle with a flipped bit is read as a state dict or refused with status 3; it causes no other error.
  for (size_t i = 0; i < valid_pickle.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed_pickle = valid_pickle;
      changed_pickle[i] = static_cast<char>(changed_pickle[i] ^ 1 << bit);
      const int status = status_of([&] { read(changed_pickle); });
      CHECK((status == 0 || status == 3));
    }
}

TEST_CASE("a zip archive that is truncated, damaged or of another format is refused", "[torch-file]") {
  const SavedFiles saved_files;
  const std::vector<std::pair<std::string, std::string>> entries{{"m/data.pkl", dict({{"a", kTensor}})},
                                                                 {"m/data/0", bytes_of(kValues)}};
  const std::string valid_archive = zip_of(entries);
  REQUIRE(saved_files.open(valid_archive).read_fp32("a") == kValues);
  // Returns the exit status of reading an archive. If the archive is read, checks that tensor `a` has the saved values:
  // checksums cover all entries, so damage that changes the values must be refused.
  auto status = [&](const std::string& bytes) {
    return status_of([&] {
      const std::vector<float> values = saved_files.open(bytes).read_fp32("a");
      CHECK(values == kValues);
    });
  };
  for (const bool is_zip64 : {false, true}) {
    const std::string intact_archive = zip_of(entries, {.is_zip64 = is_zip64});
    for (size_t size = 0; size < intact_archive.size(); ++size) {
      INFO(size);
      CHECK(status(intact_archive.substr(0, size)) == 3);
    }
    for (size_t i = 0; i < intact_archive.size(); ++i) {
      std::string changed_archive = intact_archive;
      changed_archive[i] = static_cast<char>(changed_archive[i] ^ 0x41);
      const int actual = status(changed_archive);
      CHECK((actual == 0 || actual == 3));
    }
  }
  auto archive_error = [&](const std::string& bytes) {
    try {
      saved_files.open(bytes).read_fp32("a");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(archive_error("text, not an archive"), Catch::Contains("a zip archive"));
  CHECK_THAT(archive_error("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."),
             Catch::Contains("1.6") && Catch::Contains("safe_serialization"));
  std::string flipped_archive = valid_archive;
  flipped_archive[valid_archive.find(bytes_of(kValues)) + 5] ^= 1;
  CHECK_THAT(archive_error(flipped_archive), Catch::Contains("m/data/0") && Catch::Contains("checksum"));
  std::string short_field = zip_of(entries, {.is_zip64 = true});
  const size_t field_at = short_field.rfind(bytes_of_number(1, 2) + bytes_of_number(24, 2));
  REQUIRE(field_at != short_field.npos);
  short_field[field_at + 2] = 16;  // 16 bytes instead of 24: two sizes without the offset of the entry
  CHECK_THAT(archive_error(short_field), Catch::Contains("64-bit sizes"));
  CHECK_THAT(archive_error(zip_of(entries, {.method = 8})), Catch::Contains("a compressed entry"));
  CHECK_THAT(archive_error(zip_of(entries, {.flags = 1})), Catch::Contains("an encrypted entry"));
  CHECK_THAT(archive_error(zip_of({entries[0]})), Catch::Contains("the entry m/data/0"));
  CHECK_THAT(archive_error(zip_of({entries[1]})), Catch::Contains("data.pkl"));
  CHECK_THAT(archive_error(zip_of({entries[0], entries[0]})), Catch::Contains("twice"));
  CHECK_THAT(archive_error(zip_of({entries[0], {"m/data/0", bytes_of(kValues).substr(0, 20)}})),
             Catch::Contains("6 elements of a") && Catch::Contains("20 bytes"));
  CHECK_THAT(archive_error(zip_of({entries[0], entries[1], {"m/byteorder", "big"}})), Catch::Contains("big"));
}

TEST_CASE("a model split over several files is read through its index", "[torch-file]") {
  const SavedFiles saved_files;
  auto archive = [](const std::string& name) {
    return zip_of({{"m/data.pkl", dict({{name, kTensor}})}, {"m/data/0", bytes_of(kValues)}});
  };
  auto status = [&] { return status_of([&] { open_model_files(saved_files.folder.path); }); };
  CHECK_THROWS_WITH(open_model_files(saved_files.folder.path), Catch::Contains("neither"));
  saved_files.save(archive("a"), "pytorch_model-00001-of-00002.bin");
  saved_files.save(archive("b"), "pytorch_model-00002-of-00002.bin");
  const std::string index = "pytorch_model.bin.index.json";
  const std::string index_head = R"({"metadata": {}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin", )";
  saved_files.save(index_head + R"("b": "pytorch_model-00002-of-00002.bin"}})", index);
  CHECK(open_model_files(saved_files.folder.path).read_fp32("b") == kValues);
  CHECK(open_model_files(saved_files.folder.path).entries().size() == 2);
  saved_files.save(index_head + R"("c": "pytorch_model-00002-of-00002.bin"}})", index);
  CHECK_THROWS_WITH(open_model_files(saved_files.folder.path), Catch::Contains("a file that contains the tensor c"));
  for (const char* invalid_index :
       {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": "../x"}})",
        R"({"weight_map": {"a": "missing"}})", R"({"weight_map": {"a": ".."}})",
        R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin\u0000"}})"}) {
    saved_files.save(invalid_index, index);
    CHECK(status() == 3);
  }
  saved_files.save(archive("a"), "pytorch_model-00002-of-00002.bin");
  saved_files.save(index_head + R"("b": "pytorch_model-00002-of-00002.bin"}})", index);
  CHECK_THROWS_WITH(open_model_files(saved_files.folder.path), Catch::Contains("unique tensor names"));
}
