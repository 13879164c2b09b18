package dataset

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// The words of the prose, the more frequent ones first: a word is as frequent as Zipf's law has it,
// one over its rank. Their number is that of a common writer's active words in short texts.
var (
	nouns = strings.Fields(`time year people way day man thing woman life child world school state family student group country problem hand part place case week
company system program question work government number night point home water room mother area money story fact month lot right study book eye job word business
issue side kind head house service friend father power hour game line end member law car city community name president team minute idea kid body information back
parent face others level office door health person art war history party result change morning reason research girl guy moment air teacher force education foot boy
age policy music market sense nation plan college interest death experience effect use class control care field development role effort rate heart drug show leader
light voice wife police mind price report decision view value relation town road arm difference building action season society tax director position player record
paper space ground form event official matter center couple site project activity star table need court oil situation cost industry figure street image phone data
picture practice piece land product doctor wall news test movie north love support technology step baby computer type attention film tree source organization hair
window culture chance brother energy period course summer plant opportunity term letter condition choice rule daughter south husband floor campaign material
population call economy hospital church risk fire future bank west sport board officer subject rest behavior performance top goal second bed order author blood agency
nature color store sound movement page race concern series language response animal factor decade article east artist scene stock career treatment approach size dog
fund media sign thought list individual quality pressure answer resource meeting disease success cup amount ability staff character growth loss degree attack region
television box training trade deal election feeling standard bill message analysis benefit sex lawyer section glass skill sister professor operation crime stage
authority design sort knowledge gun station strategy truth song example environment leg dark public fish machine goods harbor valley engine ledger lantern orchard
barrel canal meadow timber anchor kettle chimney quarry parcel cellar`)
	verbs = strings.Fields(`was had said made went took came saw knew got gave found thought told became showed left felt put brought began kept held wrote stood heard
let meant set met ran paid sat spoke lay led read grew lost fell sent built understood drew broke spent cut rose drove bought wore chose used asked needed wanted
called tried worked seemed helped turned started played moved liked lived believed happened provided included continued learned changed followed stopped created
allowed added opened walked offered remembered loved considered appeared served died expected stayed reached killed raised passed sold required reported decided
pulled returned explained hoped developed carried received agreed supported produced covered caught closed counted crossed measured repaired stored weighed`)
	adjectives = strings.Fields(`other new good high old great big small large national young different black long little important political bad white real best right
social only public sure low early able human local late hard major better economic strong possible whole free military true federal international full special easy
clear recent certain personal open red difficult available likely short single medical current wrong private past foreign fine common poor natural significant similar
hot dead central happy serious ready simple left physical general environmental financial blue democratic dark various entire close legal religious cold final main
green nice huge popular traditional cultural narrow quiet wooden distant careful ordinary`)
	adverbs = strings.Fields(`so up out just now then more also here well only very even back there down still in as too when never really most on why about over again
where right always today far before once often later almost around soon however together slowly quickly finally already perhaps nearly rarely`)
	names = strings.Fields(`Ada Grace Linus Mei Omar Ines Jonas Priya Noah Aiko Tomasz Kofi Hanna Yusuf London Paris Lagos Kyoto Berlin Lisbon Monday Friday March
October Europe Africa Lovelace Hopper Nakamura Schmidt Okafor Novak Rossi Kim Andersen Dubois Silva Haddad Kowalski Singh`)
	syllables = strings.Fields(`ber mon ta ri lo ven sal dor wick ham ley ston field brook mar ken ash hol den gra fer ness pen ro`)
)

// Function words are half of any text; these are given as often as they are written, for their
// frequencies follow no law.
var (
	determiners  = strings.Fields(`the the the the the the the the a a a a another his his their her its this that some every no my our one each`)
	pronouns     = strings.Fields(`he he he it it it they they she she I I we we you who there this`)
	prepositions = strings.Fields(`of of of of of of of of in in in in in to to to to for for for with with on on at at by from from about into over after under between through`)
	conjunctions = strings.Fields(`and and and and and but but or as when because while if before so`)
	auxiliaries  = strings.Fields(`would could had might should did never will can must`)
)

// zipf picks a word by its rank.
func zipf(rng *rand.Rand, words []string) string {
	// In integers, so that every machine picks the same: a rank below 2^k is as likely as one in
	// the next doubling.
	for {
		top := 1 << rng.IntN(12)
		if rank := top + rng.IntN(top) - 1; rank < len(words) {
			return words[rank]
		}
	}
}

// text returns English-like prose of about size bytes: sentences and paragraphs without meaning,
// with the word frequencies of a real text.
func text(rng *rand.Rand, size int) []byte {
	b := make([]byte, 0, size+200)
	left := 2 + rng.IntN(5) // sentences of this paragraph
	for len(b) < size {
		b = sentence(rng, b)
		if left--; left > 0 {
			b = append(b, ' ')
			continue
		}
		b = append(b, "\n\n"...)
		left = 2 + rng.IntN(5)
	}
	return b[:size]
}

// words returns a line of prose of exactly size bytes.
func words(rng *rand.Rand, size int) []byte {
	b := make([]byte, 0, size+200)
	for len(b) < size {
		b = append(sentence(rng, b), ' ')
	}
	return b[:size]
}

func sentence(rng *rand.Rand, b []byte) []byte {
	start := len(b)
	if rng.IntN(5) == 0 {
		b = append(append(b, zipf(rng, adverbs)...), ", "...)
	}
	b = clause(rng, b)
	for rng.IntN(3) == 0 {
		if rng.IntN(2) == 0 {
			b = append(b, ',')
		}
		b = clause(rng, append(append(append(b, ' '), pick(rng, conjunctions...)...), ' '))
	}
	if c := b[start]; c >= 'a' && c <= 'z' {
		b[start] = c - 'a' + 'A'
	}
	return append(b, pick(rng, ".", ".", ".", ".", ".", ".", "?", "!", ";")...)
}

func clause(rng *rand.Rand, b []byte) []byte {
	if rng.IntN(5) < 2 {
		b = append(b, pick(rng, pronouns...)...)
	} else {
		b = phrase(rng, b)
	}
	if rng.IntN(5) == 0 {
		b = append(append(b, ' '), pick(rng, auxiliaries...)...)
	}
	b = append(append(b, ' '), zipf(rng, verbs)...)
	if rng.IntN(4) > 0 {
		b = phrase(rng, append(b, ' '))
	}
	if rng.IntN(5) == 0 {
		b = append(append(b, ' '), zipf(rng, adverbs)...)
	}
	return b
}

// phrase is a noun with what belongs to it.
func phrase(rng *rand.Rand, b []byte) []byte {
	switch n := rng.IntN(20); {
	case n == 0:
		b = append(b, zipf(rng, names)...)
	case n == 1: // a name that comes once: a third of the words of a real text do
		word := pick(rng, syllables...) + pick(rng, syllables...) + pick(rng, syllables...)
		b = append(append(b, word[0]-'a'+'A'), word[1:]...)
	case n == 2:
		b = append(append(strconv.AppendInt(b, int64(2+rng.IntN(2000)), 10), ' '), zipf(rng, nouns)...)
		b = append(b, 's')
	default:
		b = append(append(b, pick(rng, determiners...)...), ' ')
		if rng.IntN(3) == 0 {
			b = append(append(b, zipf(rng, adjectives)...), ' ')
		}
		b = append(b, zipf(rng, nouns)...)
	}
	if rng.IntN(3) == 0 {
		b = phrase(rng, append(append(append(b, ' '), pick(rng, prepositions...)...), ' '))
	}
	return b
}
