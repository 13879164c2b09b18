// Package page is the kit of all reports. [New] and [Template] make the frame of a page that needs
// no network, [Grid] and [Drawing] its tables and pictures. [Sheet] and [Table] make text that fits
// a terminal; [Amount] and its like format figures for both.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"regexp"
)

var (
	//go:embed page.html
	kitMarkup string
	// Style is the style of all pages.
	//
	//go:embed page.css
	Style string
	//go:embed page.js
	kitScript string

	figureAndUnit = regexp.MustCompile(`(\d) ((?:[KMGTPE]i)?B|µs|s|min|h|days)\b`)
)

// Page is the frame around the content of a report: one HTML file that needs nothing else. Its
// content security policy allows no script, font or picture from elsewhere.
type Page struct {
	Title, Skip           string // Skip is where the first link leads, to #answer
	Style                 template.CSS
	Script                template.JS
	StyleHash, ScriptHash string // for the policy: nothing else runs
	Live                  bool   // it may ask the server that it came from for more
}

// New makes a page with a style and a script of its own behind those of all pages.
func New(title, skip, style, script string) Page {
	style, script = Style+style, "\"use strict\";{\n"+kitScript+script+"}\n"
	return Page{Title: title, Skip: skip, Style: template.CSS(style), Script: template.JS(script), StyleHash: hashOf(style), ScriptHash: hashOf(script)}
}

// Template makes a template that has those of all pages.
func Template(name, markup string) *template.Template {
	return template.Must(template.Must(template.New(name).Funcs(template.FuncMap{"unbroken": Unbroken}).Parse(kitMarkup)).Parse(markup))
}

// hashOf is the source of a content security policy that allows exactly this.
func hashOf(content string) string {
	h := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}

// Unbroken keeps figures and their units on one line.
func Unbroken(s string) string { return figureAndUnit.ReplaceAllString(s, "$1\u00a0$2") }

// Fact is a line of a list; Code is for what people type or machines read.
type Fact struct {
	Name, Value string
	Code        bool
}

// Figure is one of the large figures at the top of a page.
type Figure struct{ Label, Value, Note string }
