#include "io/pickle.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "io/pickle_values.h"

namespace mh::io {

namespace {

using namespace pickle;

// Opcodes of pickle protocol 2, with the names of pickletools in Python.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kEmptyTuple = ')',
  kBuild = 'b',
  kGlobal = 'c',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A
};

constexpr size_t kTensorCopies = 3;    // copies of a StoredTensor: one in PickleMachine::run(), two in torch_file.cpp
constexpr size_t kMaxDimensions = 64;  // maximum number of dimensions of a tensor in PyTorch
// Maximum memory of the values in bytes. An opcode of one byte can create a value of more than 100 bytes, so the size
// of the pickle does not bound the memory. A state dict takes about 2.6 KB per tensor.
constexpr size_t kMaxValueBytes = size_t{48} << 20;

// The stack machine that executes a pickle.
class PickleMachine {
 public:
  PickleMachine(std::span<const uint8_t> pickle, const std::string& name) : pickle_(pickle), name_(name) {}

  std::vector<StoredTensor> run() {
    for (;;) {
      opcode_offset_ = offset_;
      const auto opcode = static_cast<Opcode>(read_number(1));
      if (opcode == kStop) break;
      execute(opcode);
    }
    const Value root = pop();
    const auto* dict = std::get_if<Dict>(&root);
    if (dict == nullptr) refuse("a dict from names to tensors", root.kind_name(), kSafetensorsAdvice);
    std::vector<StoredTensor> tensors;
    std::set<std::string> names;
    count_memory(dict->items->size() * kTensorCopies * sizeof(StoredTensor));
    tensors.reserve(dict->items->size());
    for (const auto& [key, value] : *dict->items) {
      const auto* name = std::get_if<String>(&key);
      if (name == nullptr) refuse("tensor names as keys", key.kind_name(), kSafetensorsAdvice);
      const auto* tensor = std::get_if<Tensor>(&value);
      if (tensor == nullptr) refuse("a tensor under the key " + *name->text, value.kind_name(), kSafetensorsAdvice);
      count_memory(kTensorCopies * (name->text->size() + allocated_bytes(*tensor->tensor)));
      if (!names.insert(*name->text).second) refuse("unique tensor names", *name->text + " twice");
      tensors.push_back(*tensor->tensor);
      tensors.back().info.name = *name->text;
    }
    return tensors;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           const std::string& advice = "the file is damaged; copy the file again") const {
    refuse_input(str(name_, ": byte ", opcode_offset_), expected, found, advice);
  }

  // Counts the memory of a value before it is allocated. Throws Error(input) if all values together exceed the limit.
  void count_memory(size_t bytes) {
    if (bytes > kMaxValueBytes - value_bytes_)
      refuse(str("values of at most ", kMaxValueBytes, " bytes in memory"), "larger values", kSafetensorsAdvice);
    value_bytes_ += bytes;
  }
  // Returns the size, in bytes, of the storage key, the shape and the strides of a tensor.
  static size_t allocated_bytes(const StoredTensor& t) {
    return t.storage_key.size() + (t.info.shape.size() + t.strides.size()) * sizeof(int64_t);
  }
  // Stores data that values point to, for the lifetime of the machine. Returns the address of the data.
  template <class T>
  T* store(std::deque<T>& values, T value) {
    count_memory(sizeof(T));
    return &values.emplace_back(std::move(value));
  }

  void execute(Opcode opcode) {
    switch (opcode) {
      case kProto:
        if (const uint64_t version = read_number(1); version != 2)
          refuse("pickle protocol 2, as written by torch.save", str("protocol ", version), kSafetensorsAdvice);
        return;
      case kMark:
        return push(MarkOnStack{});
      case kNone:
        return push(None{});
      case kNewTrue:
        return push(true);
      case kNewFalse:
        return push(false);
      case kBinInt:
        return push(static_cast<int64_t>(static_cast<int32_t>(read_number(4))));
      case kBinInt1:
        return push(static_cast<int64_t>(read_number(1)));
      case kBinInt2:
        return push(static_cast<int64_t>(read_number(2)));
      case kLong1:
        return push(read_long());
      case kBinUnicode:
        return push(String{read_utf8(read_number(4))});
      case kGlobal:
        return push(read_global());
      case kEmptyDict:
        return push(new_dict());
      case kEmptyTuple:
        return push(tuple_of({}));
      case kTuple:
        return push(tuple_of(pop_to_mark()));
      case kTuple1:
        return push(tuple_of(pop_last(1)));
      case kTuple2:
        return push(tuple_of(pop_last(2)));
      case kTuple3:
        return push(tuple_of(pop_last(3)));
      case kSetItem:
        return set_items(pop_last(2));
      case kSetItems:
        return set_items(pop_to_mark());
      case kBinPut:
        return set_memo(read_number(1));
      case kLongBinPut:
        return set_memo(read_number(4));
      case kBinGet:
        return push(memo_value(read_number(1)));
      case kLongBinGet:
        return push(memo_value(read_number(4)));
      case kBinPersId:
        return push(Storage{to_storage(pop_as<Tuple>("a tuple that identifies a storage"))});
      case kReduce: {
        const auto arguments = pop_as<Tuple>("a tuple of arguments");
        return push(call(pop_as<Global>("a Python global").name, *arguments.items));
      }
      case kBuild: {  // in Python sets attributes of the dict: metadata of modules, which are discarded here
        pop_as<Dict>("attributes of a dict");
        if (!std::holds_alternative<Dict>(top()))
          refuse("a dict with attributes", top().kind_name(), kSafetensorsAdvice);
        return;
      }
      default: {
        constexpr const char* digits = "0123456789abcdef";
        refuse("an opcode of a pickled state dict", str("the opcode 0x", digits[opcode >> 4], digits[opcode & 15]),
               kSafetensorsAdvice);
      }
    }
  }

  // Functions that read the pickle. Reading past the end of the pickle throws Error(input).
  uint64_t read_number(int num_bytes) {
    uint64_t n = 0;
    const auto chunk = read_bytes(static_cast<uint64_t>(num_bytes));
    for (size_t i = 0; i < chunk.size(); ++i) n |= uint64_t{chunk[i]} << (8 * i);
    return n;
  }
  std::span<const uint8_t> read_bytes(uint64_t count) {
    if (count > pickle_.size() - offset_)
      refuse(count_of(count, "more byte"), str(count_of(pickle_.size() - offset_, "byte"), ": the data is truncated"));
    const auto chunk = pickle_.subspan(offset_, count);
    offset_ += count;
    return chunk;
  }
  const std::string* read_utf8(uint64_t size) {
    const auto chunk = read_bytes(size);
    count_memory(size);
    const std::string* text = store(texts_, std::string(chunk.begin(), chunk.end()));
    if (find_invalid_utf8(*text) != text->npos) refuse("UTF-8 text", "invalid UTF-8");
    return text;
  }
  int64_t read_long() {
    const uint64_t size = read_number(1);
    if (size > 8) refuse("a number of at most 8 bytes", str("a number of ", count_of(size, "byte")));
    if (size == 0) return 0;
    const uint64_t n = read_number(static_cast<int>(size));
    const auto num_unused_bits = static_cast<int>(64 - 8 * size);
    return static_cast<int64_t>(n << num_unused_bits) >> num_unused_bits;  // extends the sign
  }
  Global read_global() {
    auto read_line = [&] {
      std::string text;
      for (char c = 0; (c = static_cast<char>(read_number(1))) != '\n';) text += c;
      return text;
    };
    const std::string module = read_line(), name = module + "." + read_line();
    const char* global = known_global(name);
    if (global == nullptr)
      refuse("a Python class or function that a state dict of PyTorch needs",
             "the global '" + printable_text(name) + "', which multihead does not call",
             std::string("a pickle can run any code; if you trust the file, ") + kSafetensorsAdvice);
    return {global};
  }
  static std::string printable_text(const std::string& text) {
    std::string printable;
    for (char c : text) printable += c >= 0x20 && c < 0x7F ? c : '?';
    return printable;
  }

  // Functions on the stack and the memo. A missing value and a value of the wrong type throw Error(input).
  void push(Value value) {
    count_memory(2 * sizeof(Value));  // one value on the stack, and its copy in a tuple
    stack_.push_back(value);
  }
  const Value& top() {
    if (stack_.empty()) refuse("a value on the stack", "an empty stack");
    return stack_.back();
  }
  Value pop() {
    Value value = top();
    stack_.pop_back();
    return value;
  }
  template <class T>
  T pop_as(const char* expected) {
    Value value = pop();
    auto* typed_value = std::get_if<T>(&value);
    if (typed_value == nullptr) refuse(expected, value.kind_name(), kSafetensorsAdvice);
    return std::move(*typed_value);
  }
  Values pop_last(size_t count) {
    if (stack_.size() < count) refuse(str(count_of(count, "value"), " on the stack"), count_of(stack_.size(), "value"));
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Values values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return values;
  }
  Values pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value& v) { return std::holds_alternative<MarkOnStack>(v); });
    if (mark == stack_.rend()) refuse("a mark on the stack", "none");
    Values values = pop_last(static_cast<size_t>(mark - stack_.rbegin()));
    stack_.pop_back();
    return values;
  }
  void set_memo(uint64_t memo_index) {
    count_memory(sizeof(std::pair<uint64_t, Value>) + 4 * sizeof(void*));  // size of a node of `memo_`
    memo_[memo_index] = top();
  }
  const Value& memo_value(uint64_t memo_index) const {
    const auto entry = memo_.find(memo_index);
    if (entry == memo_.end()) refuse(str("the memo entry ", memo_index), "none");
    return entry->second;
  }

  // Functions that create values, add items to dicts, and check arguments.
  Tuple tuple_of(Values values) { return {store(tuples_, std::move(values))}; }
  Dict new_dict() { return {store(dicts_, {})}; }
  void set_items(Values values) {
    if (values.size() % 2 != 0) refuse("pairs of key and value", "a key without a value");
    const auto* dict = std::get_if<Dict>(&top());
    if (dict == nullptr) refuse("a dict", top().kind_name(), kSafetensorsAdvice);
    // Counts each item three times: a vector that grows has its old buffer and a new buffer of twice the size.
    count_memory(values.size() / 2 * 3 * sizeof(std::pair<Value, Value>));
    for (size_t i = 0; i < values.size(); i += 2) dict->items->emplace_back(values[i], values[i + 1]);
  }

  template <class T>
  const T& argument(const Values& values, size_t index, const char* expected) const {
    if (index >= values.size()) refuse(expected, "a missing argument");
    const auto* typed_value = std::get_if<T>(&values[index]);
    if (typed_value == nullptr) refuse(expected, values[index].kind_name(), kSafetensorsAdvice);
    return *typed_value;
  }

  const StorageId* to_storage(const Tuple& id) {
    const Values& fields = *id.items;
    constexpr const char* kExpectedTag = "the text 'storage' as the first field of a storage";
    if (*argument<String>(fields, 0, kExpectedTag).text != "storage") refuse(kExpectedTag, "other text");
    const std::string_view type = argument<Global>(fields, 1, "a storage type").name;
    const auto dtype = storage_type(type);
    if (!dtype) refuse("a storage type", std::string(type));
    const auto size = argument<int64_t>(fields, 4, "the size of a storage");
    if (size < 0) refuse("a storage size of at least 0", str(size));
    return store(storages_, {*dtype, argument<String>(fields, 2, "the key of a storage").text, size});
  }

  Value call(std::string_view function, const Values& arguments) {
    if (function == kOrderedDict) {
      if (!arguments.empty())
        refuse("a call of OrderedDict without arguments", count_of(arguments.size(), "argument"), kSafetensorsAdvice);
      return new_dict();
    }
    if (function == kRebuildTensor) return Tensor{to_tensor(arguments)};
    if (function == kRebuildParameter) return argument<Tensor>(arguments, 0, "a tensor");
    refuse("a call of a function that builds a dict or a tensor", std::string(function), kSafetensorsAdvice);
  }

  std::vector<int64_t> to_integers(const Tuple& tuple, const char* expected) const {
    if (tuple.items->size() > kMaxDimensions)
      refuse(str("at most ", kMaxDimensions, " dimensions"), count_of(tuple.items->size(), "dimension"));
    std::vector<int64_t> result;
    for (size_t i = 0; i < tuple.items->size(); ++i) {
      result.push_back(argument<int64_t>(*tuple.items, i, expected));
      if (result.back() < 0) refuse(expected, str(result.back()));
    }
    return result;
  }

  const StoredTensor* to_tensor(const Values& arguments) {
    const StorageId& storage = *argument<Storage>(arguments, 0, "a storage").id;
    StoredTensor result{
        {"", storage.type, to_integers(argument<Tuple>(arguments, 2, "a shape"), "dimensions of a tensor")},
        *storage.key,
        storage.size,
        argument<int64_t>(arguments, 1, "an offset"),
        to_integers(argument<Tuple>(arguments, 3, "strides"), "strides of a tensor")};
    if (result.strides.size() != result.info.shape.size())
      refuse("one stride per dimension",
             str(count_of(result.strides.size(), "stride"), " for ", count_of(result.info.shape.size(), "dimension")));
    if (!lies_in_storage(result))
      refuse(str("a tensor within a storage of ", count_of(storage.size, "element")),
             "a tensor that extends beyond the storage");
    count_memory(allocated_bytes(result));
    return store(tensors_, std::move(result));
  }
  static bool lies_in_storage(const StoredTensor& t) {
    try {
      t.info.num_bytes();
    } catch (const std::overflow_error&) {
      return false;
    }
    if (std::count(t.info.shape.begin(), t.info.shape.end(), 0) > 0) return true;
    int64_t last_index = t.offset;
    bool overflows = t.offset < 0;
    for (size_t i = 0; i < t.strides.size(); ++i) {
      int64_t step = 0;
      overflows |= __builtin_mul_overflow(t.info.shape[i] - 1, t.strides[i], &step);
      overflows |= __builtin_add_overflow(last_index, step, &last_index);
    }
    return !overflows && last_index < t.storage_size;
  }

  std::span<const uint8_t> pickle_;
  const std::string& name_;
  size_t offset_ = 0, opcode_offset_ = 0;  // offset of the next byte; offset of the current opcode
  size_t value_bytes_ = 0;                 // memory of all values so far
  std::deque<Value> stack_;
  std::map<uint64_t, Value> memo_;
  std::deque<std::string> texts_;
  std::deque<StorageId> storages_;
  std::deque<Values> tuples_;  // the machine owns `tuples_` and `dicts_`, since dicts may contain each other
  std::deque<std::vector<std::pair<Value, Value>>> dicts_;
  std::deque<StoredTensor> tensors_;
};

}  // namespace

std::vector<StoredTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& name) {
  return PickleMachine(pickle, name).run();
}

}  // namespace mh::io
