/* Browsers forbid a page that was opened as a file to read other files, so its search shows titles without excerpts. */
if (location.protocol === "file:") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
