// One user's badges. The stream "events" says what they are; a click says to
// "read" what of it was on the screen.
"use strict";

const $ = (id) => document.getElementById(id);

// What a tile looks like: a name, a hue, a path in a box of 24.
const looks = {
  feed: ["Feed", 220, "M4 6h16M4 11h16M4 16h10"],
  comment: ["Comments", 160, "M5 5h14a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-8l-4 4v-4H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1z"],
  mention: ["Mentions", 265, "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zm0-4v5.5a2.3 2.3 0 0 0 4.6 0V12a8.6 8.6 0 1 0-3.4 6.8"],
  like: ["Likes", 345, "M12 20S4 15 4 9.3A4.3 4.3 0 0 1 12 7a4.3 4.3 0 0 1 8 2.3C20 15 12 20 12 20z"],
  repost: ["Reposts", 130, "M7 9l-3-3 3-3M4 6h12a3 3 0 0 1 3 3v2M17 15l3 3-3 3M20 18H8a3 3 0 0 1-3-3v-2"],
  follower: ["Followers", 195, "M13 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM2.5 20a6.5 6.5 0 0 1 13 0M19 8v6M16 11h6"],
  message: ["Messages", 235, "M4 6h16v12H4zM4 7l8 6 8-6"],
  channel: ["", 35, "M6 17V11a6 6 0 1 1 12 0v6l1.5 1.5h-15zM10 21.5h4"],
  dot: ["", 290, "M7 7h10a5 5 0 0 1 5 5v2.5a2.9 2.9 0 0 1-5.4 1.5L15.2 14H8.8l-1.4 2A2.9 2.9 0 0 1 2 14.5V12a5 5 0 0 1 5-5zM7.5 9.3v3M6 10.8h3M16.5 10.8h.01"],
  other: ["", 220, "M12 4l2.5 5 5.5.8-4 3.9 1 5.5-5-2.6-5 2.6 1-5.5-4-3.9 5.5-.8z"],
};
const order = ["comment", "mention", "like", "repost", "follower", "message"];

let user = "1";
let source = null; // the stream of this user
let shown = null; // the state that is drawn, of this user
let reading = null; // a read under way: {user, what, position}

const title = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
const hueOf = (id) => Number((BigInt(id) * 137n) % 360n);
const brief = (n) => (n > 999 ? "999+" : String(n));
const still = matchMedia("(prefers-reduced-motion: reduce)");
const move = (element, frames, duration) => {
  if (!still.matches) element.animate(frames, { duration, easing: "ease-out" });
};

// trouble says what is wrong, for a while (in ms) or until all is well.
let troubled = 0;
function trouble(text, least = 0) {
  if (!text && Date.now() < troubled) return;
  troubled = Date.now() + least;
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// tilesOf lists a state's tiles: what a read calls it, how it looks, how many.
function tilesOf(state) {
  const rank = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
  const counts = Object.keys(state.counts).sort((a, b) => rank(a) - rank(b));
  const tile = (what, name, look, n, dot) => ({ what, name: looks[look][0] || title(name), look, n, dot });
  return [
    tile("feed", "feed", "feed", state.feed),
    ...counts.map((name) => tile(name, name, Object.hasOwn(looks, name) ? name : "other", state.counts[name])),
    ...Object.keys(state.channels).map((name) => tile("channel:" + name, name, "channel", state.channels[name])),
    ...Object.keys(state.dots).map((name) => tile("channel:" + name, name, "dot", state.dots[name] ? 1 : 0, true)),
  ];
}

function makeTile(tile) {
  const button = $("tile").content.cloneNode(true).querySelector("button");
  const [, hue, path] = looks[tile.look];
  button.dataset.what = tile.what;
  button.querySelector("path").setAttribute("d", path);
  button.querySelector(".icon").style.setProperty("--hue", hue);
  button.querySelector(".name").textContent = tile.name;
  button.addEventListener("click", () => read([tile.what]));
  return button;
}

function drawTile(tile, place, animate) {
  let button = $("tiles").querySelector(`[data-what="${CSS.escape(tile.what)}"]`);
  if (!button) button = makeTile(tile);
  if ($("tiles").children[place] !== button) $("tiles").insertBefore(button, $("tiles").children[place] ?? null);
  const badge = button.querySelector(".badge");
  const before = badge.hidden ? 0 : Number(badge.dataset.n);
  badge.hidden = !tile.n;
  badge.dataset.n = tile.n;
  badge.classList.toggle("dot", !!tile.dot);
  badge.textContent = tile.dot ? "" : brief(tile.n);
  const says = tile.dot ? (tile.n ? "something new" : "nothing new") : tile.n + " unread";
  button.setAttribute("aria-label", tile.name + ": " + says);
  button.title = says + "; click: read";
  button.classList.toggle("going", !!reading && (reading.what.includes(tile.what) || reading.what[0] === "all"));
  if (animate && tile.n > before) {
    move(badge, [{ transform: "scale(.6)" }, { transform: "scale(1.25)" }, { transform: "none" }], 260);
  }
}

// What an item of the bell says.
const says = {
  comment: "commented on", mention: "mentioned you in", like: "likes", repost: "reposted you in",
  follower: "follows you", message: "wrote to you",
};

// drawBell shows how much is behind the bell, and if it is open, what.
let belled = ""; // of which state the items are
async function drawBell() {
  const n = Object.values(shown?.counts ?? {}).reduce((sum, n) => sum + n, 0);
  const badge = $("bell").querySelector(".badge");
  badge.hidden = !n;
  badge.textContent = brief(n);
  if ($("inbox").hidden || !shown || belled === user + "@" + shown.as_of) return;
  const mine = (belled = user + "@" + shown.as_of);
  let items = [];
  try {
    const reply = await fetch("inbox?" + new URLSearchParams({ user }));
    if (!reply.ok) return trouble((await reply.text()).trim(), 5000);
    items = await reply.json();
  } catch (e) {
    return trouble(e.message, 5000);
  }
  if (mine === belled) $("items").replaceChildren(...(items.length ? items.map(itemOf) : [none("Nothing yet.")]));
}

function none(text) {
  const li = document.createElement("li");
  li.className = "none";
  li.textContent = text;
  return li;
}

function itemOf(item) {
  const li = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = item.read ? "" : "unread";
  button.dataset.position = item.position;
  button.textContent = `User ${item.actor} ${says[item.kind] ?? item.kind}` + (item.post !== "0" ? ` post ${item.post}` : "");
  const when = document.createElement("time");
  when.dateTime = item.time;
  when.textContent = new Date(item.time).toLocaleTimeString();
  button.append(when);
  button.addEventListener("click", () => {
    if (!item.read) readBy(new URLSearchParams({ user, item: item.position }), []);
  });
  li.append(button);
  return li;
}

// like likes a post, or takes that back. What was pressed last is sent last, and the heart shows
// it until a state is as of that event.
let likes = Promise.resolve();
let wishes = new Map(); // post: {liked, position: of its event, once that is stored}
function like(post, button) {
  const liked = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(liked));
  const mine = wishes;
  const wish = { liked, position: null };
  mine.set(post.post, wish);
  const query = new URLSearchParams({ user, post: post.post, author: post.author, undo: !liked });
  const failed = (text) => {
    if (mine.get(post.post) === wish) mine.delete(post.post);
    trouble(text, 5000);
  };
  likes = likes.then(async () => {
    try {
      const reply = await fetch("like?" + query, { method: "POST" });
      const text = await reply.text();
      if (!reply.ok) return failed(text.trim());
      wish.position = BigInt(JSON.parse(text).position);
    } catch (e) {
      failed("not known whether it is liked: " + e.message);
    }
  });
}

function makePost({ post, author }) {
  const li = document.createElement("li");
  li.dataset.post = post;
  const face = document.createElement("span");
  face.className = "avatar";
  face.textContent = author.slice(-3);
  face.style.setProperty("--hue", hueOf(author));
  const who = document.createElement("span");
  who.textContent = "User " + author;
  const which = document.createElement("span");
  which.className = "post";
  which.textContent = "post " + post;
  const heart = document.createElement("button");
  heart.type = "button";
  heart.className = "heart";
  heart.setAttribute("aria-label", `Like post ${post}`);
  heart.addEventListener("click", () => like({ post, author }, heart));
  li.append(face, who, which, heart);
  return li;
}

function drawHeart(heart, post) {
  const wish = wishes.get(post.post);
  if (wish?.position && BigInt(shown.as_of) >= wish.position) wishes.delete(post.post);
  heart.setAttribute("aria-pressed", String(wishes.get(post.post)?.liked ?? post.liked));
  heart.textContent = "♥ " + post.likes;
}

// drawPosts keeps the rows of posts that were there: a button that is replaced while it is
// pressed is not clicked.
function drawPosts(posts, animate) {
  const old = new Map([...$("posts").children].map((li) => [li.dataset.post, li]));
  const rows = posts.map((post) => {
    const li = old.get(post.post) ?? makePost(post);
    drawHeart(li.querySelector(".heart"), post);
    return li;
  });
  if (!rows.length) rows.push(none("Nothing yet: nobody followed has posted."));
  const is = $("posts").children;
  if (rows.length !== is.length || rows.some((li, i) => li !== is[i])) $("posts").replaceChildren(...rows);
  for (const li of rows) {
    if (animate && li.dataset.post && !old.has(li.dataset.post)) {
      move(li, [{ opacity: 0, transform: "translateY(-.5rem)" }, { opacity: 1, transform: "none" }], 300);
    }
  }
}

// drawNodes says which nodes there are, where there are several.
function drawNodes(nodes) {
  const names = (list) => list.map((n) => n.node).join(", ");
  const away = nodes.filter((n) => n.state === "away");
  const there = nodes.filter((n) => n.state !== "away");
  $("nodes").hidden = !nodes.length;
  $("nodes").textContent = `from nodes ${names(there.filter((n) => n.holds))}` + (away.length ? `; ${names(away)} away` : "");
  $("nodes").title = `up: ${names(there)}` + (away.length ? `; away: ${names(away)}` : "");
}

function draw(state) {
  const animate = shown !== null;
  shown = state;
  if (reading && reading.position && BigInt(state.as_of) >= BigInt(reading.position)) reading = null;
  const tiles = tilesOf(state);
  const names = new Set(tiles.map((tile) => tile.what));
  for (const button of [...$("tiles").children]) {
    if (!names.has(button.dataset.what)) button.remove();
  }
  tiles.forEach((tile, place) => drawTile(tile, place, animate));
  drawPosts(state.posts, animate);
  drawBell();
  $("as-of").textContent = state.as_of;
  $("made-up").hidden = !state.made_up;
  drawNodes(state.nodes ?? []);
  $("live").className = "on";
  busy();
  const total = tiles.reduce((sum, tile) => sum + tile.n, 0);
  document.title = (total ? `(${brief(total)}) ` : "") + "Badges of user " + user;
}

function busy() {
  $("tiles").setAttribute("aria-busy", String(reading !== null));
  $("all").disabled = reading !== null || shown === null;
}

// read says that what is drawn was looked at, as of the drawn state. What came since stays
// unread.
function read(what) {
  if (!shown) return;
  const query = new URLSearchParams({ user, as_of: shown.as_of });
  for (const name of what) query.append("what", name);
  readBy(query, what);
}

// readBy sends a read, one at a time.
async function readBy(query, what) {
  if (reading || !shown) return;
  const mine = (reading = { user, what, position: null });
  draw(shown);
  let failed = "";
  try {
    const reply = await fetch("read?" + query, { method: "POST" });
    const text = await reply.text();
    if (reply.ok) mine.position = JSON.parse(text).position;
    else failed = text.trim();
  } catch (e) {
    failed = "not known whether it was read: " + e.message;
  }
  if (reading !== mine) return; // another user is shown by now
  if (failed) {
    reading = null;
    trouble(failed, 5000);
  }
  draw(shown); // it may be as of the read already
}

// show turns to a user. What the number may be, the server says.
function show(id) {
  source?.close();
  user = id;
  shown = reading = null;
  $("user").value = id;
  const valid = /^[0-9]{1,20}$/.test(id);
  $("face").textContent = valid ? id.slice(-3) : "?";
  $("face").style.setProperty("--hue", valid ? hueOf(id) : 220);
  $("prev").disabled = !valid || BigInt(id) <= 1n;
  $("tiles").replaceChildren();
  wishes = new Map();
  $("posts").replaceChildren();
  $("items").replaceChildren();
  $("as-of").textContent = "…";
  $("live").className = "";
  document.title = "Badges";
  history.replaceState(null, "", "?user=" + encodeURIComponent(id));
  troubled = 0;
  trouble("");
  busy();
  listen();
}

function listen() {
  const url = "events?user=" + encodeURIComponent(user);
  const mine = (source = new EventSource(url));
  mine.addEventListener("state", (e) => {
    trouble("");
    draw(JSON.parse(e.data));
  });
  mine.addEventListener("trouble", (e) => {
    $("live").className = "";
    trouble(JSON.parse(e.data));
  });
  mine.onerror = async () => {
    $("live").className = "";
    if (mine.readyState !== EventSource.CLOSED) return trouble("Not connected; trying again.");
    const why = await refusal(url); // the browser does not tell
    if (mine !== source) return;
    trouble(why.text);
    if (why.again) setTimeout(() => mine === source && listen(), 3000);
  };
}

async function refusal(url) {
  const enough = new AbortController();
  try {
    const reply = await fetch(url, { signal: enough.signal });
    if (reply.ok) return { text: "Not connected; trying again.", again: true };
    return { text: (await reply.text()).trim(), again: reply.status >= 500 };
  } catch {
    return { text: "Not connected; trying again.", again: true };
  } finally {
    enough.abort();
  }
}

const step = (by) => show(/^[0-9]{1,20}$/.test(user) ? String(BigInt(user) + by) : "1");
$("prev").addEventListener("click", () => step(-1n));
$("next").addEventListener("click", () => step(1n));
$("all").addEventListener("click", () => read(["all"]));
$("bell").addEventListener("click", () => {
  $("inbox").hidden = !$("inbox").hidden;
  $("bell").setAttribute("aria-expanded", String(!$("inbox").hidden));
  belled = "";
  drawBell();
});
$("who").addEventListener("submit", (e) => e.preventDefault()); // Enter is a change already
$("user").addEventListener("change", () => show($("user").value.trim()));

show(new URLSearchParams(location.search).get("user") || "1");
