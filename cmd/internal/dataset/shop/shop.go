// Package shop has the types of the built-in sets of package dataset: the values that a shop keeps
// in its cache. [Profile], [Session] and [LogBatch] resemble those of real services. Values of a
// chosen size are [Listing]s. [Fields10], [Fields100] and [Fields1000] are structs with 10, 100 and
// 1,000 fields of mixed types, the last one in groups. Package flat has 1,000 fields in a row.
//
// The code of easyjson and tinylib/msgp beside them is generated, the methods Fields are for the
// binary form of package wire, which is written by hand, and package shoppb has the same
// messages as protocol buffers. No type has a method that another library would use (MarshalJSON
// and similar ones): otherwise that library would measure the first one twice.
package shop

import "time"

//go:generate go run ./genfields
//go:generate go run github.com/mailru/easyjson/easyjson -all -no_std_marshalers -output_filename easyjson.go .
//go:generate go run github.com/tinylib/msgp -io=false -tests=false -file . -o msgp.go
//go:generate go run ./genfields -compile shoppb

//msgp:tag json
//msgp:newtime
//msgp:timezone utc

// Profile is a user's profile, about 450 bytes of JSON.
type Profile struct {
	ID        int64     `json:"id" msgpack:"id"`
	Name      string    `json:"name" msgpack:"name"`
	Email     string    `json:"email" msgpack:"email"`
	Country   string    `json:"country" msgpack:"country"`
	Language  string    `json:"language" msgpack:"language"`
	Avatar    string    `json:"avatar_url" msgpack:"avatar_url"`
	Plan      string    `json:"plan" msgpack:"plan"`
	Verified  bool      `json:"verified" msgpack:"verified"`
	Balance   int       `json:"balance_cents" msgpack:"balance_cents"`
	CreatedAt time.Time `json:"created_at" msgpack:"created_at"`
	Settings  Settings  `json:"settings" msgpack:"settings"`
	Tags      []string  `json:"tags" msgpack:"tags"`
}

// Settings are a part of a Profile.
type Settings struct {
	Theme         string `json:"theme" msgpack:"theme"`
	Newsletter    bool   `json:"newsletter" msgpack:"newsletter"`
	Notifications string `json:"notifications" msgpack:"notifications"`
	Timezone      string `json:"timezone" msgpack:"timezone"`
}

// Session is a login with a cart, about 800 bytes of JSON.
type Session struct {
	Token     string    `json:"token" msgpack:"token"`
	UserID    int64     `json:"user_id" msgpack:"user_id"`
	IP        string    `json:"ip" msgpack:"ip"`
	UserAgent string    `json:"user_agent" msgpack:"user_agent"`
	ExpiresAt time.Time `json:"expires_at" msgpack:"expires_at"`
	Scopes    []string  `json:"scopes" msgpack:"scopes"`
	Cart      []Item    `json:"cart" msgpack:"cart"`
}

// Item is a line of a cart.
type Item struct {
	SKU      string `json:"sku" msgpack:"sku"`
	Title    string `json:"title" msgpack:"title"`
	Quantity int    `json:"quantity" msgpack:"quantity"`
	Price    int    `json:"price_cents" msgpack:"price_cents"`
}

// LogBatch is what a service sent in a moment: about 12 KB of JSON in the set logs, 10 MB in
// log10mb.
type LogBatch struct {
	Service string     `json:"service" msgpack:"service"`
	Host    string     `json:"host" msgpack:"host"`
	Entries []LogEntry `json:"entries" msgpack:"entries"`
}

// LogEntry is a line of a log.
type LogEntry struct {
	Time    time.Time `json:"time" msgpack:"time"`
	Level   string    `json:"level" msgpack:"level"`
	Message string    `json:"message" msgpack:"message"`
	TraceID string    `json:"trace_id" msgpack:"trace_id"`
	Micros  int       `json:"duration_us" msgpack:"duration_us"`
}

// Listing is a page of posts, as long as is asked for.
type Listing struct {
	ID    int64  `json:"id" msgpack:"id"`
	Posts []Post `json:"posts" msgpack:"posts"`
	Note  string `json:"note" msgpack:"note"`
}

// Post is an entry of a Listing, about 400 bytes of JSON.
type Post struct {
	ID     string    `json:"id" msgpack:"id"`
	Author string    `json:"author" msgpack:"author"`
	At     time.Time `json:"at" msgpack:"at"`
	Title  string    `json:"title" msgpack:"title"`
	Body   string    `json:"body" msgpack:"body"`
	Image  string    `json:"image" msgpack:"image"`
	Likes  int       `json:"likes" msgpack:"likes"`
	Score  float64   `json:"score" msgpack:"score"`
}

// Place is a part of the structs with many fields.
type Place struct {
	Street    string  `json:"street" msgpack:"street"`
	City      string  `json:"city" msgpack:"city"`
	Latitude  float64 `json:"latitude" msgpack:"latitude"`
	Longitude float64 `json:"longitude" msgpack:"longitude"`
}
