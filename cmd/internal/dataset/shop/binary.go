package shop

import "github.com/balekv/bale/cmd/internal/dataset/shop/wire"

// Fields names the fields for the binary form, as the methods of the other types do.
func (p *Profile) Fields(c *wire.Coder) {
	wire.Int(c, &p.ID)
	c.String(&p.Name)
	c.String(&p.Email)
	c.String(&p.Country)
	c.String(&p.Language)
	c.String(&p.Avatar)
	c.String(&p.Plan)
	c.Bool(&p.Verified)
	wire.Int(c, &p.Balance)
	c.Time(&p.CreatedAt)
	c.String(&p.Settings.Theme)
	c.Bool(&p.Settings.Newsletter)
	c.String(&p.Settings.Notifications)
	c.String(&p.Settings.Timezone)
	c.Strings(&p.Tags)
}

func (s *Session) Fields(c *wire.Coder) {
	c.String(&s.Token)
	wire.Int(c, &s.UserID)
	c.String(&s.IP)
	c.String(&s.UserAgent)
	c.Time(&s.ExpiresAt)
	c.Strings(&s.Scopes)
	wire.List(c, &s.Cart, func(c *wire.Coder, i *Item) {
		c.String(&i.SKU)
		c.String(&i.Title)
		wire.Int(c, &i.Quantity)
		wire.Int(c, &i.Price)
	})
}

func (b *LogBatch) Fields(c *wire.Coder) {
	c.String(&b.Service)
	c.String(&b.Host)
	wire.List(c, &b.Entries, func(c *wire.Coder, e *LogEntry) {
		c.Time(&e.Time)
		c.String(&e.Level)
		c.String(&e.Message)
		c.String(&e.TraceID)
		wire.Int(c, &e.Micros)
	})
}

func (l *Listing) Fields(c *wire.Coder) {
	wire.Int(c, &l.ID)
	wire.List(c, &l.Posts, func(c *wire.Coder, p *Post) {
		c.String(&p.ID)
		c.String(&p.Author)
		c.Time(&p.At)
		c.String(&p.Title)
		c.String(&p.Body)
		c.String(&p.Image)
		wire.Int(c, &p.Likes)
		c.Float(&p.Score)
	})
	c.String(&l.Note)
}

func (p *Place) Fields(c *wire.Coder) {
	c.String(&p.Street)
	c.String(&p.City)
	c.Float(&p.Latitude)
	c.Float(&p.Longitude)
}
