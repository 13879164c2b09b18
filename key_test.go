package bale

import (
	"errors"
	"testing"
)

func TestKey(t *testing.T) {
	for _, test := range []struct {
		domain, resource, id, field string
		want                        string // empty for an error
	}{
		{"shop", "user", "1001", "", "shop:user:1001"},
		{"shop", "user", "1001", "profile", "shop:user:1001:profile"},
		{"my-shop.v2", "User_1", "a b/c", "", "my-shop.v2:User_1:a b/c"},
		{"shop", "user", "a:b", "c:d", "shop:user:a%3Ab:c%3Ad"},
		{"shop", "user", "100%", "", "shop:user:100%25"},
		{"shop", "user", "{tag}", "", "shop:user:{tag}"},
		{"shop", "user", "\x00\xff", "", "shop:user:\x00\xff"},
		{"", "user", "1", "", ""}, {"shop", "", "1", "", ""}, {"shop", "user", "", "", ""}, {"shop", "user", "", "f", ""},
		{"sh:op", "user", "1", "", ""}, {"shop", "us er", "1", "", ""}, {"shop", "us*", "1", "", ""}, {"shöp", "user", "1", "", ""},
	} {
		k, err := NewKey(test.domain, test.resource, test.id, test.field)
		if test.want == "" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if err != nil || k.String() != test.want || k.Group() != test.domain+":"+test.resource {
			t.Errorf("%+v: %q, group %q, %v", test, k, k.Group(), err)
		}
		if back, err := ParseKey(test.want); err != nil || back != k {
			t.Errorf("%q is read as %+v, %v", test.want, back, err)
		}
	}
	for _, s := range []string{"", "a", "a:b", "a:b:", "a:b:c:d:e", "a:b:c:", "a:b:%zz", "a:b:%41", "a:b:%3a", "a b:c:d"} {
		if k, err := ParseKey(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is read as %+v, %v", s, k, err)
		}
	}
}

// FuzzKey: what is written is read back, and what is read is written the same.
func FuzzKey(f *testing.F) {
	f.Add("shop", "user", "1:%", "x")
	f.Add("a:b:c:d", "", "", "")
	f.Fuzz(func(t *testing.T, domain, resource, id, field string) {
		if k, err := NewKey(domain, resource, id, field); err == nil {
			if back, err := ParseKey(k.String()); err != nil || back != k {
				t.Errorf("%+v is read back as %+v, %v", k, back, err)
			}
		}
		if k, err := ParseKey(domain); err == nil && k.String() != domain {
			t.Errorf("%q is written as %q", domain, k)
		}
	})
}
