package main

// request is an operation that the driver asks a worker for: a line of JSON.
type request struct {
	ID      int64    `json:"id"`
	Kind    string   `json:"kind"`
	Keys    []string `json:"keys,omitempty"`
	Fields  []string `json:"fields,omitempty"` // of the hash Keys[0]
	N       []int64  `json:"n,omitempty"`      // numbers of the writes, one a key or field
	Style   int      `json:"style,omitempty"`
	Size    int      `json:"size,omitempty"`
	TTL     int64    `json:"ttl,omitempty"`     // in ms, 0 for none
	Timeout int64    `json:"timeout,omitempty"` // in ms
	Loader  string   `json:"loader,omitempty"`  // what the loader does: ok, fail, none, hang
}

// reply is what came of it.
type reply struct {
	ID    int64  `json:"id"`
	Got   []got  `json:"got,omitempty"`   // what was read, one a key or field
	Wrote []done `json:"wrote,omitempty"` // what became of the writes, one a key or field
	Loads int    `json:"loads,omitempty"` // how often the loader was called
	Stale bool   `json:"stale,omitempty"`
	Note  string `json:"note,omitempty"` // how the operation went to the server, for reports
}

// The states of what was read.
const (
	gotValue = "value"
	gotNone  = "none"
	gotError = "error"
	gotBad   = "bad" // something that was never written there
)

type got struct {
	State string `json:"state"`
	N     int64  `json:"n,omitempty"`
	PTTL  int64  `json:"pttl,omitempty"`
	Err   string `json:"err,omitempty"`
	Class string `json:"class,omitempty"` // of the error
}

// done is what became of a write.
type done struct {
	OK      bool   `json:"ok,omitempty"`
	Refused bool   `json:"refused,omitempty"` // for certain it was not done
	Err     string `json:"err,omitempty"`
}

// workerConfig says how a worker works. It is an argument of its process.
type workerConfig struct {
	Number    int               `json:"number"`
	Servers   string            `json:"servers"`            // single, cluster or sentinel
	Addrs     []string          `json:"addrs"`              // of servers, or sentinels
	Registry  string            `json:"registry,omitempty"` // address of the dictionaries' own server
	Proxies   map[string]string `json:"proxies"`            // address to dial in place of another
	Engine    string            `json:"engine"`             // go or libzstd
	Algorithm string            `json:"algorithm"`
	ReadOnly  bool              `json:"read_only"` // the hook unpacks alone
	Dict      bool              `json:"dict"`      // follow groups of dictionaries
	Sidecar   string            `json:"sidecar"`   // the bale command, where bale proxy packs in place of the hook
	Auto      bool              `json:"auto"`
	GraceMS   int64             `json:"grace_ms"`
	Route     bool              `json:"route"` // read from replicas: not in use while the model has no lag
	Timeout   int64             `json:"timeout"`
}

const masterName = "campaign"
