package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"regexp"
)

var (
	//go:embed page.html
	pageMarkup string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	figureAndUnit = regexp.MustCompile(`(\d) ((?:[KMGTPE]i)?B|µs|s|min|h|days)\b`)
)

// page is the frame around the content of a report: one HTML file that needs nothing else. Its
// content security policy allows no script, font or picture from elsewhere.
type page struct {
	Title, Skip           string // Skip is where the first link leads, to #answer
	Style                 template.CSS
	Script                template.JS
	StyleHash, ScriptHash string // for the policy: nothing else runs
	Live                  bool   // it may ask the server that it came from for more
}

// newPage makes a page with a style and a script of its own behind those of all pages.
func newPage(title, skip, style, script string) page {
	style, script = pageStyle+style, "\"use strict\";{\n"+pageScript+script+"}\n"
	return page{Title: title, Skip: skip, Style: template.CSS(style), Script: template.JS(script), StyleHash: hashOf(style), ScriptHash: hashOf(script)}
}

// newTemplate makes a template that has those of all pages.
func newTemplate(name, markup string) *template.Template {
	return template.Must(template.Must(template.New(name).Funcs(template.FuncMap{"unbroken": unbroken}).Parse(pageMarkup)).Parse(markup))
}

// hashOf is the source of a content security policy that allows exactly this.
func hashOf(content string) string {
	h := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}

// unbroken keeps figures and their units on one line.
func unbroken(s string) string { return figureAndUnit.ReplaceAllString(s, "$1\u00a0$2") }

// pageFact is a line of a list; Code is for what people type or machines read.
type pageFact struct {
	Name, Value string
	Code        bool
}

type pageFigure struct{ Label, Value, Note string }
