package flame

import "strings"

// Category is what a function works for.
type Category uint8

const (
	Other      Category = iota
	Compress            // compression and decompression, libzstd's behind cgo too
	Serialize           // serialization and deserialization
	Network             // sockets, and the clients of Redis
	GC                  // the garbage collector: its own goroutines, and what allocating ones do for it
	Scheduler           // waiting for, choosing and waking goroutines
	categories = iota
)

// Categories are all there are, in the order to show them in.
func Categories() []Category { return []Category{Compress, Serialize, Network, GC, Scheduler, Other} }

// String is the category's name; "flame-" and it are its class in a page.
func (c Category) String() string {
	return [...]string{"other", "compress", "serialize", "network", "gc", "scheduler"}[c]
}

// Label is the category in a text.
func (c Category) Label() string {
	return [...]string{"other", "compression", "serialization", "network", "garbage collection", "scheduler"}[c]
}

const bale = "github.com/balekv/bale/"

// packages are the paths whose packages, and those below them, belong to a category.
var packages = map[string]Category{
	"compress": Compress, "github.com/klauspost/compress": Compress, "github.com/pierrec/lz4": Compress, "github.com/golang/snappy": Compress,
	"github.com/valyala/gozstd": Compress, bale + "compress": Compress, bale + "extra/czstd": Compress, bale + "cmd/internal/engine": Compress,

	"encoding": Serialize, "github.com/go-json-experiment/json": Serialize, "github.com/goccy/go-json": Serialize,
	"github.com/bytedance/sonic": Serialize, "github.com/mailru/easyjson": Serialize,
	"github.com/vmihailenco/msgpack": Serialize, "github.com/vmihailenco/tagparser": Serialize,
	"github.com/shamaton/msgpack": Serialize, "github.com/tinylib/msgp": Serialize, "github.com/philhofer/fwd": Serialize,
	"github.com/fxamacker/cbor": Serialize, "google.golang.org/protobuf": Serialize, "github.com/golang/protobuf": Serialize,
	bale + "codec": Serialize, bale + "extra/formats": Serialize, bale + "cmd/internal/dataset": Serialize,

	"net": Network, "internal/poll": Network, "syscall": Network, "crypto/tls": Network, "github.com/redis/go-redis": Network,
	"github.com/redis/rueidis": Network, "github.com/gomodule/redigo": Network, "github.com/mediocregopher/radix": Network,
	bale + "adapter": Network,
}

// runtimeFunctions are those of package runtime that belong to a category, by how their names
// begin. All others work for their caller: to allocate, to copy, to call C.
var runtimeFunctions = []struct {
	prefix   string
	category Category
}{
	{"gc", GC}, {"_GC", GC}, {"bgsweep", GC}, {"bgscavenge", GC}, {"sweepone", GC}, {"deductSweepCredit", GC}, {"scanobject", GC}, {"scanSpan", GC},
	{"markroot", GC}, {"greyobject", GC}, {"wbBufFlush", GC}, {"bulkBarrier", GC}, {"(*gcWork)", GC}, {"(*sweepLocked)", GC}, {"(*scavenge", GC},

	{"schedule", Scheduler}, {"findRunnable", Scheduler}, {"park_m", Scheduler}, {"goschedImpl", Scheduler}, {"gopreempt_m", Scheduler},
	{"goschedguarded", Scheduler}, {"goexit0", Scheduler}, {"mstart", Scheduler}, {"wakep", Scheduler}, {"startm", Scheduler}, {"stopm", Scheduler},
	{"ready", Scheduler}, {"goready", Scheduler}, {"gopark", Scheduler}, {"resetspinning", Scheduler}, {"stealWork", Scheduler},
	{"runqgrab", Scheduler}, {"netpoll", Scheduler}, {"sysmon", Scheduler}, {"retake", Scheduler}, {"newproc", Scheduler}, {"injectglist", Scheduler},
}

// categoryOf returns the category of a function, or its caller's if it has none of its own. So a
// sample belongs to the innermost call with a category. Memory that a serializer allocates counts
// as the serializer's. C, which profiles show as runtime.cgocall, counts for the Go package that
// calls it.
func categoryOf(function string, caller Category) Category {
	pkg := packageOf(function)
	if pkg == "runtime" {
		name := function[len("runtime."):]
		for _, f := range runtimeFunctions {
			if strings.HasPrefix(name, f.prefix) {
				return f.category
			}
		}
		return caller
	}
	for path := pkg; path != ""; {
		if c, ok := packages[path]; ok {
			return c
		}
		slash := strings.LastIndexByte(path, '/')
		path = path[:max(slash, 0)]
	}
	return caller
}
