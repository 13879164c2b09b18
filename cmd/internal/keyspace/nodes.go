package keyspace

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/balekv/bale/cmd/internal/printable"
)

const (
	clientName  = "bale" // in CLIENT LIST
	dialWithin  = time.Second
	probeWithin = 2 * time.Second // all that is asked of a replica before it is chosen
	maxBehind   = 16 << 20        // bytes of its master's writes that a replica may lack

	mostReplicas = 100 // that are asked, all at once: who answers as the master may announce any number
)

// probeKey is asked for to see which commands are allowed, and whose a slot is. Nobody can know its
// name, so it is not there.
var probeKey = "bale:advise:" + rand.Text()

// Topology is where the keys of a Redis are read from: a server for each master, which is a replica
// of it where there is a good one.
//
// On a server with access control, the user needs no more than
//
//	ACL SETUSER bale on >PASSWORD %R~* +info +ping +scan +type +pttl +strlen +getrange +hlen +hscan +hstrlen +hkeys +hmget +object|encoding +memory|usage
//
// where "+@read +info +ping" is shorter, and allows to read by all commands. A database other than
// 0 takes +select, a cluster +cluster|slots, and its replicas +readonly. Redis before 7.0 has no
// %R~* but ~*. Without +object|encoding and +memory|usage the memory of keys is estimated.
// Without +hstrlen, +hkeys or +hmget large hashes are read by the mean size of their fields: a few
// much larger ones then arrive whole. With
// +client|setname, administrators see who reads. With +client|no-touch (from Redis 7.2, and Valkey;
// in a cluster from Redis 8.4 and Valkey 9.0) reading does not make keys look used. Without it, a
// master that evicts by LRU or LFU has a note. The group +@connection has all of these, and CLIENT
// KILL. Users are set on each server: if a replica does not know the user, its master is read.
type Topology struct {
	Nodes   []Node // which have all keys, each key once
	Masters int
	Cluster bool

	// Notes are for people: why a master is read though it has replicas, and what the user may not
	// do.
	Notes []string
}

// Node is a server to read from.
type Node struct {
	// Client is for this server alone, in the database of the client that Nodes was given. Plain
	// commands and pipelines work on it, on a cluster as far as the keys are this server's.
	Client  *redis.Client
	Addr    string
	Master  string // its address, which is Addr where the server is read itself
	Replica bool
	Keys    int64 // in the database, as the server counts them, those that have expired and are not yet removed included

	written int64 // the offset of the master's writes when it was asked
}

// Nodes chooses where to read without a burden to masters. It chooses a replica that answers within
// some seconds to the same user and password. The replica must belong to the master, be in step
// with it, and not be loading; of several, Nodes takes the least delayed. Otherwise it takes the
// master, and adds a note with the reason. If the client's server is itself a replica, Nodes reads
// that one. The caller closes the topology; the client remains the caller's.
//
// A replica announces its own address, and any client with the right to replicate can announce one.
// So a replica of a single master gets the user and password only over TLS, with a certificate of
// the master's name, or if announced is true. In a cluster the addresses come from the servers, and
// the client connects to them by itself.
func Nodes(ctx context.Context, client redis.UniversalClient, announced bool) (*Topology, error) {
	t := &Topology{Masters: 1}
	var err error
	switch c := client.(type) {
	case *redis.Client:
		err = t.single(ctx, c, announced)
	case *redis.ClusterClient:
		err = t.cluster(ctx, c)
	default:
		err = fmt.Errorf("keys are read from one server or a cluster, not by a %T", client)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close closes the clients.
func (t *Topology) Close() error {
	var err error
	for _, n := range t.Nodes {
		err = errors.Join(err, n.Client.Close())
	}
	t.Nodes = nil
	return err
}

func (t *Topology) single(ctx context.Context, c *redis.Client, trusted bool) error {
	o := *c.Options()
	m, err := open(ctx, o, false)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Addr, err)
	}
	var replicas []*member
	withheld := !trusted && !proven(o.TLSConfig) && hasCredentials(&o)
	if m.state["role"] == "master" {
		var group sync.WaitGroup
		var lock sync.Mutex
		for i := range mostReplicas {
			addr, ok := announced(m.state["slave"+strconv.Itoa(i)])
			if !ok {
				break
			}
			if withheld {
				replicas = append(replicas, &member{addr: addr, err: errWithheld})
				continue
			}
			group.Go(func() {
				r := askReplica(ctx, o, addr, false)
				lock.Lock()
				defer lock.Unlock()
				replicas = append(replicas, r)
			})
		}
		group.Wait()
	}
	return t.choose(ctx, m, replicas)
}

var errWithheld = errors.New("it announces its address itself, and does not get your password without TLS; --replicas sends it")

// proven reports whether who answers over TLS has shown to be called as the server that the user
// has named.
func proven(c *tls.Config) bool { return c != nil && !c.InsecureSkipVerify && c.ServerName != "" }

func hasCredentials(o *redis.Options) bool {
	return o.Username+o.Password != "" || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
}

func (t *Topology) cluster(ctx context.Context, c *redis.ClusterClient) error {
	var lock sync.Mutex
	var masters, replicas []*member
	err := c.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { // all at once
		m, err := open(ctx, *n.Options(), false)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Options().Addr, err)
		}
		lock.Lock()
		defer lock.Unlock()
		masters = append(masters, m)
		return nil
	})
	if err == nil {
		err = c.ForEachSlave(ctx, func(ctx context.Context, n *redis.Client) error {
			r := askReplica(ctx, *n.Options(), n.Options().Addr, true)
			lock.Lock()
			defer lock.Unlock()
			replicas = append(replicas, r)
			return nil
		})
	}
	t.Cluster, t.Masters = true, len(masters)
	slices.SortFunc(masters, func(a, b *member) int { return cmp.Compare(a.addr, b.addr) })
	for _, m := range masters {
		if err != nil {
			m.close()
			continue
		}
		var its, others []*member
		for _, r := range replicas {
			if r.err == nil && r.state["master_replid"] == m.state["master_replid"] {
				its = append(its, r)
			} else {
				others = append(others, r)
			}
		}
		replicas = others
		err = t.choose(ctx, m, its)
	}
	for _, r := range replicas { // whose master they do not say
		t.note("replica %s is not read: %v", r.addr, cmp.Or(r.err, errForeign))
		r.close()
	}
	return Explain(err, c.Options().Username)
}

// member is a server that was asked for its state.
type member struct {
	client *redis.Client
	addr   string
	user   string
	db     int
	state  map[string]string // of INFO
	notes  []string
	err    error // why it is not to be read
}

var errForeign = errors.New("it is no replica of this master")

func (m *member) close() {
	if m.client != nil {
		m.client.Close()
	}
}

func (m *member) offset(name string) int64 {
	n, _ := strconv.ParseInt(m.state[name], 10, 64)
	return n
}

// keys is how many there are in the database: "db0:keys=5,expires=0".
func (m *member) keys() (n int64) {
	fmt.Sscanf(m.state["db"+strconv.Itoa(m.db)], "keys=%d,", &n) // none if it is empty
	return n
}

// askReplica asks another server than the one that the options are for.
func askReplica(ctx context.Context, o redis.Options, addr string, cluster bool) *member {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	o.Network, o.Addr, o.NodeAddress = "tcp", addr, ""
	o.DialTimeout, o.DialerRetries = dialWithin, 1
	config := o.TLSConfig
	if config != nil && cluster { // a single server's replica is proven by the server's name
		config = either(config, addr)
	}
	// The dialer of the options may be for their server alone, or not heed the context with TLS.
	d := &net.Dialer{Timeout: dialWithin}
	dial := d.DialContext
	if config != nil {
		dial = (&tls.Dialer{NetDialer: d, Config: config}).DialContext
	}
	o.Dialer = guarded(dial, largestString)
	m, err := open(ctx, o, cluster)
	if err != nil {
		return &member{addr: addr, user: o.Username, err: err}
	}
	return m
}

// open asks a server for its state, by a client of our own.
func open(ctx context.Context, o redis.Options, readOnly bool) (*member, error) {
	o.MaxRetries = 1 // a broken connection is no reason to end; a server that does not answer is not asked again and again
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	before, named := o.OnConnect, o.ClientName != ""
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		return greet(ctx, c, readOnly, named)
	}
	m := &member{client: redis.NewClient(&o), addr: o.Addr, user: o.Username, db: o.DB, state: map[string]string{}}
	info, err := m.client.Info(ctx).Result()
	if err != nil && !IsForbidden(err) {
		m.close()
		return nil, Explain(err, o.Username)
	}
	if err == nil {
		m.state = Info(info)
		return m, nil
	}
	m.err = Explain(err, o.Username) // why a replica is not read; a master is read all the same
	m.notes = append(m.notes, fmt.Sprintf("%v: replicas are not looked for, so that the master is read, and figures of the server are missing", m.err))
	if n, err := m.client.DBSize(ctx).Result(); err == nil {
		m.state["db"+strconv.Itoa(o.DB)] = fmt.Sprintf("keys=%d,", n)
	}
	return m, nil
}

// greet prepares a connection. An unknown command, or one that the user may not run, is not an
// error. The exception is READONLY: without it a replica in a cluster does not answer. NO-TOUCH
// goes to servers that survive it: see [endsByNoTouch].
func greet(ctx context.Context, c *redis.Conn, readOnly, named bool) error {
	var must *redis.StatusCmd
	var info *redis.StringCmd
	commands, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Info(ctx, "server")
		if readOnly {
			must = p.ReadOnly(ctx)
		}
		if !named {
			p.ClientSetName(ctx, clientName)
		}
		return nil
	})
	if info.Err() == nil && !endsByNoTouch(Info(info.Val())) {
		commands = append(commands, c.Do(ctx, "CLIENT", "NO-TOUCH", "ON"))
	}
	for _, command := range commands {
		if err := command.Err(); err != nil && (!IsReply(err) || must != nil && command == redis.Cmder(must)) {
			return err
		}
	}
	return nil
}

// choose takes the best replica of a master, or else the master, and closes the others.
func (t *Topology) choose(ctx context.Context, master *member, replicas []*member) error {
	for _, r := range replicas {
		if r.err == nil {
			r.err = r.behind(master)
		}
		if r.err == nil {
			probing, cancel := context.WithTimeout(ctx, probeWithin)
			r.err = r.check(probing)
			cancel()
		}
		if r.err != nil {
			t.note("replica %s is not read: %v", r.addr, r.err)
			r.close()
		}
	}
	replicas = slices.DeleteFunc(slices.Clone(replicas), func(r *member) bool { return r.err != nil })
	slices.SortStableFunc(replicas, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.offset("slave_repl_offset"), a.offset("slave_repl_offset")), cmp.Compare(a.addr, b.addr))
	})
	chosen := master
	var err error
	if len(replicas) > 0 {
		chosen = replicas[0]
		master.close()
		for _, r := range replicas[1:] {
			r.close()
		}
	} else if err = master.check(ctx); err != nil {
		err = fmt.Errorf("%s: %w", master.addr, err)
	}
	t.Nodes = append(t.Nodes, Node{Client: chosen.client, Addr: chosen.addr, Master: master.addr, Replica: chosen.state["role"] == "slave", Keys: chosen.keys(), written: master.offset("master_repl_offset")})
	if chosen == master && err == nil {
		text, failed := touching(ctx, master.client)
		err = failed
		if text != "" {
			chosen.notes = append(chosen.notes, text)
		}
	}
	for _, n := range chosen.notes {
		if !slices.Contains(t.Notes, n) { // for it holds of other servers, too
			t.note("%s", n)
		}
	}
	return cmp.Or(err, ctx.Err())
}

func (t *Topology) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}

// behind returns why a replica cannot be read in place of a master that was asked before it, or
// nil.
func (m *member) behind(master *member) error {
	switch lacks := master.offset("master_repl_offset") - m.offset("slave_repl_offset"); {
	case m.state["role"] != "slave" || m.state["master_replid"] == "" || m.state["master_replid"] != master.state["master_replid"]:
		return errForeign // the address may lead elsewhere from here
	case m.state["loading"] == "1" || m.state["async_loading"] == "1" || m.state["master_sync_in_progress"] == "1":
		return errors.New("it still loads its data")
	case m.state["master_link_status"] != "up":
		return errors.New("it has no link to its master")
	case lacks > maxBehind:
		return fmt.Errorf("it is %s behind", printable.Size(lacks))
	}
	return nil
}

// check runs each command that reading takes, so that one error lists all missing permissions.
// Missing permissions that reading can do without go into notes.
func (m *member) check(ctx context.Context) error {
	commands, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Ping(ctx)
		p.Scan(ctx, 0, "", 1)
		p.Type(ctx, probeKey)
		p.PTTL(ctx, probeKey)
		p.StrLen(ctx, probeKey)
		p.GetRange(ctx, probeKey, 0, 0)
		p.HLen(ctx, probeKey)
		p.HScan(ctx, probeKey, 0, "", 1)
		p.ObjectEncoding(ctx, probeKey)
		p.MemoryUsage(ctx, probeKey)
		return nil
	})
	if err != nil && !IsReply(err) && !errors.Is(err, redis.Nil) {
		return err
	}
	var denied, missed []string
	someKeys := false
	for _, command := range commands {
		err := command.Err()
		name := command.Name()
		optional := name == "memory" || name == "object"
		switch {
		case err == nil, errors.Is(err, redis.Nil), isWrongType(err), redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
		case deniedCommand(err) != "" && optional:
			missed = append(missed, deniedCommand(err))
		case deniedCommand(err) != "":
			denied = append(denied, deniedCommand(err))
		case redis.HasErrorPrefix(err, "NOPERM"):
			someKeys = true
		case optional: // which is not there everywhere
		default:
			return fmt.Errorf("%s: %w", strings.ToUpper(name), err)
		}
	}
	if len(missed) > 0 {
		m.notes = append(m.notes, fmt.Sprintf("memory is estimated: %v", denial(m.user, missed)))
	}
	if someKeys {
		m.notes = append(m.notes, fmt.Sprintf("the user %q may read some keys only; ACL SETUSER %[1]s %%R~* allows all", cmp.Or(m.user, "default")))
	}
	if len(denied) > 0 {
		return denial(m.user, denied)
	}
	return nil
}

// announced is the address in a line of INFO replication,
// "ip=127.0.0.1,port=6380,state=online,offset=1,lag=0".
func announced(line string) (addr string, ok bool) {
	fields := map[string]string{}
	for f := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(f, "=")
		fields[name] = value
	}
	return net.JoinHostPort(fields["ip"], fields["port"]), fields["ip"] != "" && fields["port"] != ""
}

// ErrDenied says that a server does not let a user run a command, and how it would.
var ErrDenied = errors.New("not allowed by the server")

// ErrReplica says that a server is a replica. After a fail-over that may pass.
var ErrReplica = errors.New("the server is a replica, which takes no writes: give the URL of its master")

// deniedPattern is a refusal of a command or subcommand ("cluster|slots"), as opposed to one of a
// key.
var deniedPattern = regexp.MustCompile(`NOPERM .*permissions? to run the '([^']+)' `)

func deniedCommand(err error) string {
	text := err.Error() // which may name a key, and anybody can choose that
	var reply redis.Error
	if errors.As(err, &reply) {
		text = reply.Error()
	} else if !strings.HasPrefix(text, "NOPERM ") {
		return ""
	}
	m := deniedPattern.FindStringSubmatch(text)
	if m == nil || unknownCommand.MatchString(text) { // that answer has the arguments
		return ""
	}
	return strings.ToLower(m[1])
}

func denial(user string, commands []string) error {
	user = cmp.Or(user, "default")
	names := strings.ToUpper(strings.ReplaceAll(strings.Join(commands, ", "), "|", " "))
	return fmt.Errorf("%w: the user %q may not run %s; ACL SETUSER %s +%s allows it", ErrDenied, user, names, user, strings.Join(commands, " +"))
}

// UserOf is the user that a client signs in as, empty for the default one.
func UserOf(c redis.UniversalClient) string {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().Username
	case *redis.ClusterClient:
		return c.Options().Username
	}
	return ""
}

// Explain wraps [ErrDenied] around the refusal of a command, with the rule that the user lacks, and
// [ErrReplica] around that of a write. If the server does not know the command, the new error
// leaves out the arguments, which may be values. The user is that of the URL, empty for the default
// one. Other errors come back as they are.
func Explain(err error, user string) error {
	if err == nil || errors.Is(err, ErrDenied) || errors.Is(err, ErrReplica) {
		return err
	}
	if c := deniedCommand(err); c != "" {
		return denial(user, []string{c})
	}
	if redis.HasErrorPrefix(err, "READONLY") ||
		IsReply(err) && strings.Contains(err.Error(), "-READONLY ") { // of a script, before Redis 7
		return fmt.Errorf("%w (%w)", ErrReplica, err)
	}
	if m := unknownCommand.FindStringSubmatch(err.Error()); m != nil && IsReply(err) {
		return fmt.Errorf("%w: it has no command %s, or it was taken away", ErrDenied, cmp.Or(strings.ToUpper(m[1]), "of this kind"))
	}
	return err
}

// mastersAtOnce is the default of [Pace.Masters].
const mastersAtOnce = 16

// AtOnce does something with each server, with as many at a time as the pace says. An error ends
// the contexts of all, and is returned; of several it is the first.
func AtOnce[T any](ctx context.Context, p Pace, servers []T, do func(ctx context.Context, server T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	room := make(chan struct{}, cmp.Or(max(p.Masters, 0), mastersAtOnce))
	for _, server := range servers {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			if err := do(ctx, server); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
