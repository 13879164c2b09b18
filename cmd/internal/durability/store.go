package durability

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/sqlproc"
	"github.com/balekv/bale/internal/redisproc"
)

// store is a server with a setting, as it is measured.
type store interface {
	// connect opens a connection for each caller; disconnect closes them.
	connect(ctx context.Context) error
	disconnect()

	// write returns when the server has acknowledged a value. Each caller has its own connection.
	write(ctx context.Context, caller int, id int64, value []byte) error

	// read calls each for every value there is from an id on. There are none with the id to and
	// above.
	read(ctx context.Context, from, to int64, each func(id int64, value []byte) error) error

	// clear removes all values, or leaves them if they are few and no burden.
	clear(ctx context.Context) error

	kill() time.Time // with SIGKILL, and says when
	restart(ctx context.Context) error
	version() string
	close() error
}

// redisStore is a private redis-server with a log of writes.
type redisStore struct {
	server   *redisproc.Server
	password string
	client   *redis.Client
	name     string
}

func startRedis(ctx context.Context, args []string) (store, error) {
	password := rand.Text()
	server, err := redisproc.StartWith(ctx, redisproc.Options{Args: args, Password: password, Unprivileged: true})
	if err != nil {
		return nil, err
	}
	return &redisStore{server: server, password: password}, nil
}

func (s *redisStore) connect(ctx context.Context) error {
	s.client = redis.NewClient(&redis.Options{
		Dialer:   func(ctx context.Context, _, _ string) (net.Conn, error) { return s.server.DialUnix(ctx) },
		Password: s.password, PoolSize: maxCallers, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: writeTimeout, WriteTimeout: writeTimeout,
	})
	info, err := s.client.Info(ctx, "server").Result()
	s.name = keyspace.ServerName(keyspace.Version(keyspace.Info(info)))
	return err
}

func (s *redisStore) disconnect() {
	if s.client != nil {
		s.client.Close() // the server may have ended
		s.client = nil
	}
}

func redisKey(id int64) string { return "write:" + strconv.FormatInt(id, 10) }

func (s *redisStore) write(ctx context.Context, _ int, id int64, value []byte) error {
	return s.client.Set(ctx, redisKey(id), value, 0).Err()
}

func (s *redisStore) read(ctx context.Context, from, to int64, each func(int64, []byte) error) error {
	const batch = 1000
	for ; from < to; from += batch {
		var keys []string
		for id := from; id < min(from+batch, to); id++ {
			keys = append(keys, redisKey(id))
		}
		values, err := s.client.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for i, v := range values {
			if text, ok := v.(string); ok {
				if err := each(from+int64(i), []byte(text)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *redisStore) clear(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

func (s *redisStore) kill() time.Time {
	at := time.Now()
	s.server.Kill()
	return at
}

func (s *redisStore) restart(ctx context.Context) error { return s.server.Restart(ctx) }

func (s *redisStore) version() string { return s.name }

func (s *redisStore) close() error { return s.server.Close() }

// sqlStore is a private PostgreSQL or MariaDB with a table of writes.
type sqlStore struct {
	server *sqlproc.Server
	kind   *sqlproc.Kind
	db     *sql.DB
	conns  []*sql.Conn
	insert []*sql.Stmt // of each connection
	rows   int64       // at most
}

const manyRows = 1_000_000 // 300 MB

func startSQL(ctx context.Context, kind *sqlproc.Kind, args []string) (store, error) {
	server, err := sqlproc.Start(ctx, kind, args...)
	if err != nil {
		return nil, err
	}
	return &sqlStore{server: server, kind: kind}, nil
}

func (s *sqlStore) connect(ctx context.Context) (err error) {
	if s.db, err = s.server.Open(); err != nil {
		return err
	}
	bytes, place := "VARBINARY(1024)", "?, ?"
	if s.kind == sqlproc.PostgreSQL {
		bytes, place = "BYTEA", "$1, $2"
	}
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS writes (id BIGINT PRIMARY KEY, value "+bytes+")"); err != nil {
		return err
	}
	for range maxCallers {
		c, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		s.conns = append(s.conns, c)
		statement, err := c.PrepareContext(ctx, "INSERT INTO writes VALUES ("+place+")")
		if err != nil {
			return err
		}
		s.insert = append(s.insert, statement)
	}
	return nil
}

func (s *sqlStore) disconnect() {
	for _, c := range s.conns {
		c.Close() // the server may have ended
	}
	if s.db != nil {
		s.db.Close()
	}
	s.conns, s.insert, s.db = nil, nil, nil
}

func (s *sqlStore) write(ctx context.Context, caller int, id int64, value []byte) error {
	_, err := s.insert[caller].ExecContext(ctx, id, value)
	return err
}

func (s *sqlStore) read(ctx context.Context, from, to int64, each func(int64, []byte) error) (err error) {
	s.rows += to - from
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT id, value FROM writes WHERE id >= %d", from))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var value sql.RawBytes
		if err := rows.Scan(&id, &value); err != nil {
			return err
		}
		if err := each(id, value); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *sqlStore) clear(ctx context.Context) error {
	if s.rows < manyRows { // a new table makes the next writes slow
		return nil
	}
	s.rows = 0
	_, err := s.db.ExecContext(ctx, "TRUNCATE TABLE writes")
	return err
}

func (s *sqlStore) kill() time.Time { return s.server.Kill() }

func (s *sqlStore) restart(ctx context.Context) error { return s.server.Restart(ctx) }

func (s *sqlStore) version() string { return fmt.Sprintf("%s %s", s.kind.Name, s.server.Version) }

func (s *sqlStore) close() error { return s.server.Close() }

// fileStore appends to a file and waits for fsync: the least that a durable write costs on this
// disk without any database. Its callers take turns.
type fileStore struct {
	file *os.File
	mu   sync.Mutex
}

const recordSize = 8 + valueSize

func startFile(context.Context, []string) (store, error) {
	f, err := os.CreateTemp("", "bale-file-")
	if err != nil {
		return nil, err
	}
	return &fileStore{file: f}, nil
}

func (s *fileStore) connect(context.Context) error { return nil }

func (s *fileStore) disconnect() {}

func (s *fileStore) write(_ context.Context, _ int, id int64, value []byte) error {
	record := binary.BigEndian.AppendUint64(make([]byte, 0, recordSize), uint64(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file.Write(append(record, value...)); err != nil {
		return err
	}
	return s.file.Sync()
}

func (s *fileStore) read(_ context.Context, _, _ int64, each func(int64, []byte) error) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for r, record := bufio.NewReader(s.file), make([]byte, recordSize); ; {
		switch _, err := io.ReadFull(r, record); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := each(int64(binary.BigEndian.Uint64(record)), record[8:]); err != nil {
			return err
		}
	}
}

func (s *fileStore) clear(context.Context) error {
	_, err := s.file.Seek(0, io.SeekStart)
	return errors.Join(err, s.file.Truncate(0))
}

func (s *fileStore) kill() time.Time { return time.Now() }

func (s *fileStore) restart(context.Context) error { return nil }

func (s *fileStore) version() string { return "" }

func (s *fileStore) close() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

// writeTimeout is for one command: a slower disk fails the cell.
const writeTimeout = 30 * time.Second
