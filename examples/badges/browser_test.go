package badges_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/query/client"
)

// badge is an expression: what a badge says, "" when there is none.
func badge(what string) string {
	return `(b => b && !b.hidden && b.offsetWidth > 0 ? (b.textContent || "dot") : "")(document.querySelector('[data-what="` + what + `"] .badge'))`
}

func tile(what string) string { return `[data-what="` + what + `"]` }

// The page in a real headless browser.
func TestBrowser(t *testing.T) {
	p := open(t)
	b := browse(t)
	pictures := t.TempDir()
	if dir := os.Getenv("BADGES_PICTURES"); dir != "" {
		pictures = dir // to look at
	}
	b.goTo(p.url + "?user=7")
	b.until(`document.querySelectorAll(".tile").length`, 8.0) // feed, six columns, games
	b.until(`document.querySelectorAll(".badge:not([hidden])").length`, 0.0)
	b.until(`document.getElementById("made-up").offsetWidth > 0`, true)

	p.publish(client.Follow(7, 9), client.Follow(7, 10), client.Read(7, "all"))
	p.publish(client.Comment(9, 50, 7), client.Comment(10, 50, 7), client.Comment(11, 50, 7), client.Like(9, 50, 7), client.Message(9, 7))
	b.until(badge("comment"), "3")
	b.until(badge("like"), "1")
	b.until(badge("channel:games"), "")

	b.click(tile("comment"))
	b.until(badge("comment"), "")
	b.until(badge("like"), "1")
	b.until(`document.getElementById("tiles").getAttribute("aria-busy")`, "false")

	p.publish(client.Notice("games", 1))
	b.until(badge("channel:games"), "dot")
	for i := range uint64(8) {
		p.publish(client.Post(9+i%2, 1001+i))
	}
	p.publish(client.Notice("system", 2), client.Mention(9, 7), client.Comment(9, 50, 7))
	b.until(badge("comment"), "1")
	b.until(badge("feed"), "8")
	b.until(badge("channel:system"), "1")
	b.until(`[...document.querySelectorAll("#posts li")].map(li => li.innerText.replace(/\s+/g, " ")).join()`,
		"10 User 10 post 1008 ♥ 0,9 User 9 post 1007 ♥ 0,10 User 10 post 1006 ♥ 0,9 User 9 post 1005 ♥ 0,10 User 10 post 1004 ♥ 0,9 User 9 post 1003 ♥ 0")
	b.until(`document.title`, "(14) Badges of user 7")
	b.click(`[data-post="1008"] .heart`)
	b.until(`document.querySelector('[data-post="1008"] .heart').textContent`, "♥ 1")
	b.eval(`for (let i = 0; i < 6; i++) document.querySelector('[data-post="1008"] .heart').click()`) // like mad
	b.until(`document.querySelector('[data-post="1008"] .heart').textContent`, "♥ 1")
	b.until(`likes.then(() => document.querySelector('[data-post="1008"] .heart').getAttribute("aria-pressed"))`, "true")
	b.until(`document.querySelector("#bell .badge").textContent`, "4")
	b.click("#bell")
	b.until(`document.querySelectorAll("#items .unread").length`, 4.0)
	b.until(`document.querySelectorAll("#items button").length`, 7.0)
	b.picture(filepath.Join(pictures, "light.png"))
	b.ask("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
	b.picture(filepath.Join(pictures, "dark.png"))

	b.click("#all")
	b.until(`document.querySelectorAll(".badge:not([hidden])").length`, 0.0)
	b.until(`document.title`, "Badges of user 7")

	// Another user, for whom the dot is lit, and one that is none.
	b.click("#prev")
	b.until(`document.title`, "(1) Badges of user 6")
	b.until(`location.search`, "?user=6")
	b.eval(`(i => { i.value = "nobody"; i.dispatchEvent(new Event("change")) })(document.getElementById("user"))`)
	b.until(`document.getElementById("trouble").textContent`, `"nobody" is not a user: a whole number from 1 to 18446744073709551615`)
	b.eval(`(i => { i.value = "18446744073709551615"; i.dispatchEvent(new Event("change")) })(document.getElementById("user"))`)
	b.until(`document.title`, "(1) Badges of user 18446744073709551615")
}

// I7 in the browser: what comes while the click is under way stays.
func TestBrowserReadsWhatItShows(t *testing.T) {
	p := open(t)
	b := browse(t)
	p.publish(client.Follow(7, 9), client.Read(7, "all"), client.Comment(9, 50, 7), client.Post(9, 1))
	b.goTo(p.url + "?user=7")
	b.until(badge("comment"), "1")
	b.until(badge("feed"), "1")
	// The page hears no more; it still shows 1 and 1, as a slow one would.
	b.eval(`source.close()`)
	p.publish(client.Comment(9, 50, 7), client.Comment(9, 50, 7), client.Post(9, 2), client.Post(9, 3), client.Post(9, 4))
	b.click("#all")
	b.until(`reading.position !== null`, true)
	b.eval(`listen()`)
	b.until(badge("comment"), "2")
	b.until(badge("feed"), "3")
}
