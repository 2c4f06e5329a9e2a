//! The sources, as the tests of the documentation look at them: what each file declares, and the texts that it can print.
//!
//! Always holds: comments, documentation and code that is only there for tests are not looked at for texts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use e2e::binaries::repository;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{ImplItem, Item, TraitItem, Type};

/// All files with the extension `rs` below the folder, which counts from the repository's, sorted.
pub(super) fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("an entry of a folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Everything that a file declares: `function`, `Type`, `Type::method`, `Type::Variant`, `Type::field`, `CONSTANT`.
pub(super) fn declared(path: &Path) -> BTreeSet<String> {
    let file = syn::parse_file(&text_of(path))
        .unwrap_or_else(|error| panic!("{} is not Rust: {error}", path.display()));
    let mut names = BTreeSet::new();
    for item in &file.items {
        declare(item, &mut names);
    }
    names
}

fn declare(item: &Item, names: &mut BTreeSet<String>) {
    let mut member = |of: &str, name: &dyn ToString| {
        names.insert(format!("{of}::{}", name.to_string()));
    };
    let name = match item {
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Const(item) => item.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Struct(item) => {
            let name = item.ident.to_string();
            let fields = item.fields.iter().filter_map(|field| field.ident.as_ref());
            fields.for_each(|field| member(&name, field));
            name
        }
        Item::Enum(item) => {
            let name = item.ident.to_string();
            let variants = item.variants.iter();
            variants.for_each(|variant| member(&name, &variant.ident));
            name
        }
        Item::Trait(item) => {
            let name = item.ident.to_string();
            for one in &item.items {
                if let TraitItem::Fn(function) = one {
                    member(&name, &function.sig.ident);
                }
            }
            name
        }
        Item::Impl(item) => {
            if let Type::Path(path) = &*item.self_ty
                && let Some(last) = path.path.segments.last()
            {
                let name = last.ident.to_string();
                for one in &item.items {
                    match one {
                        ImplItem::Fn(function) => member(&name, &function.sig.ident),
                        ImplItem::Const(constant) => member(&name, &constant.ident),
                        _ => {}
                    }
                }
            }
            return;
        }
        Item::Mod(item) => {
            for one in item.content.iter().flat_map(|(_, items)| items) {
                declare(one, names);
            }
            return;
        }
        _ => return,
    };
    names.insert(name);
}

/// A text in the code, with `…` for what is filled in, and the words around it in its brackets.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) words: BTreeSet<String>,
}

/// Every text in the code below these folders.
pub(super) fn texts(folders: &[&str]) -> Vec<Text> {
    let mut texts = Vec::new();
    for path in folders.iter().flat_map(|folder| rust_files(folder)) {
        if path.components().any(|part| part.as_os_str() == "tests")
            || path.file_name().is_some_and(|name| name == "tests.rs")
        {
            continue;
        }
        let tokens: TokenStream = text_of(&path)
            .parse()
            .unwrap_or_else(|error| panic!("{} is not Rust: {error}", path.display()));
        collect(tokens, &mut texts);
    }
    texts
}

fn collect(tokens: TokenStream, texts: &mut Vec<Text>) {
    let mut here = Vec::new();
    let mut words = BTreeSet::new();
    let mut is_test = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                if let Some(TokenTree::Group(group)) = tokens.peek()
                    && group.delimiter() == Delimiter::Bracket
                {
                    let attribute = group.stream().to_string();
                    is_test |= attribute.starts_with("cfg") && attribute.contains("test");
                    if attribute.starts_with("doc") {
                        tokens.next();
                    }
                }
            }
            TokenTree::Group(group) => {
                let is_body = group.delimiter() == Delimiter::Brace;
                if !(is_body && std::mem::take(&mut is_test)) {
                    collect(group.stream(), texts);
                }
            }
            TokenTree::Ident(word) => {
                words.insert(word.to_string());
            }
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    here.push(filled(&text.value()));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
    texts.extend(here.into_iter().map(|text| Text {
        text,
        words: words.clone(),
    }));
}

/// A format string with `…` for its places.
fn filled(format: &str) -> String {
    let mut text = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '{' if characters.peek() == Some(&'{') => {
                characters.next();
                text.push('{');
            }
            '}' if characters.peek() == Some(&'}') => {
                characters.next();
                text.push('}');
            }
            '{' => {
                for inner in characters.by_ref() {
                    if inner == '}' {
                        break;
                    }
                }
                text.push('…');
            }
            _ => text.push(character),
        }
    }
    text
}
